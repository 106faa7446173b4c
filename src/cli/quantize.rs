//! `ropeteam quantize`: a model in few bits, as a folder that vLLM, transformers and this program load.

use super::ending;
use super::flags::{Computing, ConfigFlags};
use super::meter::Meter;
use super::output;
use crate::config::resolve;
use crate::exit::Exit;
use crate::logging;
use crate::start_error::StartError;
use crate::wiring::direct::DirectModel;
use clap::builder::{PossibleValuesParser, TypedValueParser};
use ropeteam_device::{Device, DeviceError, Precision};
use ropeteam_engine::text::TextCodec;
use ropeteam_models::quantize::{
    CALIBRATION_TEXT, Calibration, Int4Format, Written, int4, int8, remove_unfinished,
};
use std::path::PathBuf;

/// What to write.
#[derive(Debug, clap::Args)]
pub struct QuantizeArgs {
    /// The model: a folder with weights in floats, or org/name
    model: String,
    /// Weights of the projections; embedding, head and norms stay as they are
    #[arg(long)]
    to: Target,
    /// Folder to write; it must not be there yet, or be empty
    #[arg(long, value_name = "DIR")]
    out: PathBuf,
    /// Text whose activations int4 weights are rounded for [default: one of our own]
    #[arg(long, value_name = "FILE")]
    calibration: Option<PathBuf>,
    /// Inputs that share a factor, for int4 [default: 32]
    #[arg(long, value_name = "N", value_parser = group_sizes())]
    group_size: Option<usize>,
    /// Leave out the zero points of int4 groups: fewer bytes and more error
    #[arg(long)]
    symmetric: bool,
    /// Round each int4 weight by itself, without a calibration text, for comparison
    #[arg(long, conflicts_with = "calibration")]
    plain: bool,
    #[command(flatten)]
    config: ConfigFlags<Computing>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
enum Target {
    Int8,
    Int4,
}

/// Inputs that share a factor where the flags leave it open.
const GROUP_SIZE: usize = 32;

fn group_sizes() -> impl TypedValueParser<Value = usize> {
    PossibleValuesParser::new(["32", "64", "128"]).try_map(|word| word.parse::<usize>())
}

/// Runs the command.
///
/// # Errors
/// What is wrong with the model, the text, the device or the folder.
pub fn run(args: QuantizeArgs) -> Result<Exit, StartError> {
    check(&args)?;
    // What is half written must not stay.
    ending::at_signal(remove_unfinished)?;
    let config = args.config.clone().with_model(args.model.clone());
    let config = resolve(config.into_inputs())?.config;
    logging::start(&config.server_config);
    let model = DirectModel::open(&config)?;
    let Written { matrices, bytes } = match args.to {
        Target::Int8 => {
            let meter = Meter::new(4 * model.spec.layers(), "projections");
            int8(&model.checkpoint, &args.out, &mut |done, _| meter.at(done))?
        }
        Target::Int4 => to_int4(&args, &model)?,
    };
    let size = bytes as f64 / 1e6;
    output::print(&format!(
        "{}: {matrices} matrices in {}, {size:.1} MB in all\n",
        args.out.display(),
        match args.to {
            Target::Int8 => "int8",
            Target::Int4 => "int4",
        }
    ))?;
    Ok(Exit::Done)
}

/// A flag that would have no effect is a mistake of who gives it.
fn check(args: &QuantizeArgs) -> Result<(), StartError> {
    if args.config.names("quantize") {
        let what = "--quantize is for models in use; what is written is said by --to";
        return Err(StartError::Usage(what.to_owned()));
    }
    let of_int4 = [
        ("--calibration", args.calibration.is_some()),
        ("--group-size", args.group_size.is_some()),
        ("--symmetric", args.symmetric),
        ("--plain", args.plain),
    ];
    match of_int4.iter().find(|(_, given)| *given) {
        Some((flag, _)) if args.to == Target::Int8 => Err(StartError::Usage(format!(
            "{flag} belongs to --to int4; int8 weights have one factor per output"
        ))),
        _ => Ok(()),
    }
}

fn to_int4(args: &QuantizeArgs, model: &DirectModel) -> Result<Written, StartError> {
    let format = Int4Format {
        group: args.group_size.unwrap_or(GROUP_SIZE),
        symmetric: args.symmetric,
    };
    let text = match &args.calibration {
        Some(file) => std::fs::read_to_string(file).map_err(|error| {
            StartError::Usage(format!("--calibration: {}: {error}", file.display()))
        })?,
        None => CALIBRATION_TEXT.to_owned(),
    };
    let ids = model.codec.encode(&text, false);
    let ids = ids.map_err(|error| StartError::Other(error.to_string()))?;
    let open_device = |precision: Precision| -> Result<Box<dyn Device>, DeviceError> {
        model.open_device(precision)
    };
    let calibration = Calibration {
        ids: &ids,
        open_device: &open_device,
    };
    let calibration = (!args.plain).then_some(&calibration);
    let meter = Meter::new(4 * model.spec.layers(), "projections");
    let told = &mut |done, _| meter.at(done);
    Ok(int4(
        &model.checkpoint,
        &args.out,
        format,
        calibration,
        told,
    )?)
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;

    #[derive(Debug, Parser)]
    struct Only {
        #[command(flatten)]
        args: QuantizeArgs,
    }

    fn checked(words: &str) -> Result<(), String> {
        let words = "quantize m --out o".split(' ').chain(words.split(' '));
        let only = Only::try_parse_from(words).expect("known flags");
        check(&only.args).map_err(|error| error.to_string())
    }

    #[test]
    fn flags_without_effect_are_refused_by_name() {
        for (words, named) in [
            ("--to int8 --calibration f", "--calibration"),
            ("--to int8 --group-size 64", "--group-size"),
            ("--to int8 --symmetric", "--symmetric"),
            ("--to int8 --plain", "--plain"),
            ("--to int8 --quantize int4", "--quantize"),
            ("--to int4 --quantize int4", "--quantize"),
        ] {
            let error = checked(words).expect_err(words);
            assert!(error.starts_with(named), "{words}: {error}");
        }
        assert_eq!(checked("--to int8"), Ok(()));
        assert_eq!(checked("--to int4 --group-size 64 --symmetric"), Ok(()));
    }
}
