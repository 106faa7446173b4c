//! The `ropeteam` binary; everything it does is in the library.

fn main() -> std::process::ExitCode {
    ropeteam::cli::main()
}
