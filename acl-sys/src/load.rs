//! Finds and opens the CANN libraries and looks every declared function up in all of them: custom operator packages first, then
//! the split operator libraries of CANN 9.x, then the single one of 8.x. What is not found is absent, not a failure; only a
//! machine without the runtime or its operator base cannot go on.

use crate::acl_mdl::Graphs;
use crate::acl_meta::Meta;
use crate::acl_rt::Runtime;
use crate::aclnn::Operators;
use libloading::Library;
use std::mem::ManuallyDrop;
use std::path::{Path, PathBuf};

/// Libraries without which there is nothing to talk to.
const REQUIRED: [&str; 2] = ["libascendcl.so", "libnnopbase.so"];
/// Operators that someone added; they take the place of the built-in ones.
const CUSTOM: &str = "libcust_opapi.so";
/// Built-in operators: CANN 9.x splits them by field, 8.x has them in one library.
const BUILT_IN: [&str; 7] = [
    "libopapi_math.so",
    "libopapi_nn.so",
    "libopapi_cv.so",
    "libopapi_transformer.so",
    "libopapi_legacy.so",
    "libopapi_oam.so",
    "libopapi.so",
];

/// The libraries cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum LoadError {
    /// A library that is always needed does not open.
    #[error("cannot open {library}: {}", .tried.join("; "))]
    Missing {
        /// Its file name.
        library: &'static str,
        /// What each place said.
        tried: Vec<String>,
    },
}

/// Where libraries are looked for.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Search {
    /// Folders of the CANN libraries, in order.
    pub folders: Vec<PathBuf>,
    /// Folders of custom operator packages, in order of priority.
    pub custom: Vec<PathBuf>,
    /// Whether the dynamic linker may look as well (`LD_LIBRARY_PATH`), before the folders.
    pub linker: bool,
}

impl Search {
    /// The linker's own places, then those that CANN's environment names.
    pub fn from_environment() -> Self {
        Self::from_variables(|name| std::env::var(name).ok())
    }

    fn from_variables(variable: impl Fn(&str) -> Option<String>) -> Self {
        let homes = ["ASCEND_HOME_PATH", "ASCEND_TOOLKIT_HOME"];
        let homes = homes.iter().filter_map(|name| variable(name));
        let custom = variable("ASCEND_CUSTOM_OPP_PATH").unwrap_or_default();
        let custom = custom.split(':').filter(|path| !path.is_empty());
        let mut custom: Vec<PathBuf> = custom
            .map(|path| Path::new(path).join("op_api/lib"))
            .collect();
        if let Some(packages) = variable("ASCEND_OPP_PATH") {
            custom.extend(vendor_folders(&Path::new(&packages).join("vendors")));
        }
        Self {
            folders: homes.map(|home| Path::new(&home).join("lib64")).collect(),
            custom,
            linker: true,
        }
    }

    /// Every way to name a library, in order.
    fn candidates(&self, library: &str) -> Vec<PathBuf> {
        let linker = self.linker.then(|| PathBuf::from(library));
        let folders = self.folders.iter().map(|folder| folder.join(library));
        linker.into_iter().chain(folders).collect()
    }
}

/// Operator packages below `vendors`, in the order that its `config.ini` gives them.
fn vendor_folders(vendors: &Path) -> Vec<PathBuf> {
    let config = std::fs::read_to_string(vendors.join("config.ini")).unwrap_or_default();
    let order = config
        .lines()
        .find_map(|line| line.trim().strip_prefix("load_priority="));
    let names = order.unwrap_or_default().split(',').map(str::trim);
    names
        .filter(|name| !name.is_empty())
        .map(|name| vendors.join(name).join("op_api/lib"))
        .collect()
}

/// Open libraries in the order in which symbols are looked up. They are never closed: the driver's threads live in them.
#[derive(Default)]
pub(crate) struct Libraries {
    open: Vec<(PathBuf, ManuallyDrop<Library>)>,
}

impl Libraries {
    fn open(&mut self, path: PathBuf) -> Result<(), libloading::Error> {
        // SAFETY: the CANN libraries are made to be opened at run time; their initialisers need nothing from us.
        let library = unsafe { Library::new(&path) }?;
        self.open.push((path, ManuallyDrop::new(library)));
        Ok(())
    }

    pub(crate) fn open_first(&mut self, candidates: Vec<PathBuf>) -> Result<(), Vec<String>> {
        let mut tried = Vec::new();
        for path in candidates {
            match self.open(path.clone()) {
                Ok(()) => return Ok(()),
                Err(error) => tried.push(format!("{}: {}", path.display(), reason(&error))),
            }
        }
        Err(tried)
    }

    /// The first library's symbol of this name.
    ///
    /// # Safety
    /// `T` must be the symbol's type.
    pub(crate) unsafe fn symbol<T: Copy>(&self, name: &str) -> Option<T> {
        self.open.iter().find_map(|(_, library)| {
            // SAFETY: the caller's promise; the library stays open, so the copied pointer stays valid.
            unsafe { library.get::<T>(name.as_bytes()) }
                .ok()
                .map(|symbol| *symbol)
        })
    }
}

/// The linker's own words, which stand behind the error.
fn reason(error: &libloading::Error) -> String {
    std::error::Error::source(error).map_or_else(|| error.to_string(), |source| source.to_string())
}

/// All functions of the installed libraries.
#[derive(Clone)]
pub struct Acl {
    /// Process, device, stream, event, memory.
    pub runtime: Runtime,
    /// Captured graphs.
    pub graphs: Graphs,
    /// Tensors and executors.
    pub meta: Meta,
    /// Operators.
    pub operators: Operators,
    /// The libraries that were opened, in the order of look-up.
    pub libraries: Vec<PathBuf>,
}

impl Acl {
    /// Opens what is installed.
    ///
    /// # Errors
    /// `Missing` when the runtime or the operator base does not open.
    pub fn load(search: &Search) -> Result<Self, LoadError> {
        let mut libraries = Libraries::default();
        for library in REQUIRED {
            libraries
                .open_first(search.candidates(library))
                .map_err(|tried| LoadError::Missing { library, tried })?;
        }
        for folder in &search.custom {
            // An operator library may be missing; its operators are then absent.
            let _ = libraries.open(folder.join(CUSTOM));
        }
        for library in BUILT_IN {
            let _ = libraries.open_first(search.candidates(library));
        }
        Ok(Self {
            runtime: Runtime::resolve(&libraries),
            graphs: Graphs::resolve(&libraries),
            meta: Meta::resolve(&libraries),
            operators: Operators::resolve(&libraries),
            libraries: libraries.open.into_iter().map(|(path, _)| path).collect(),
        })
    }

    /// Names of all declared functions that the libraries lack.
    pub fn absent(&self) -> Vec<&'static str> {
        [
            self.runtime.absent(),
            self.graphs.absent(),
            self.meta.absent(),
            self.operators.absent(),
        ]
        .concat()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Absent;

    #[test]
    fn a_machine_without_cann_is_told_what_was_tried() {
        let nowhere = tempfile::tempdir().expect("a folder");
        let search = Search {
            folders: vec![nowhere.path().to_owned()],
            ..Search::default()
        };
        let error = Acl::load(&search).err().expect("nothing is there");
        let text = error.to_string();
        assert!(
            text.starts_with("cannot open libascendcl.so: "),
            "says which: {text}"
        );
        assert!(
            text.contains(&nowhere.path().display().to_string()),
            "says where: {text}"
        );
    }

    #[test]
    fn a_function_that_no_library_has_is_absent_by_name() {
        let table = Runtime::resolve(&Libraries::default());
        assert_eq!(table.absent().len(), Runtime::SIGNATURES.len());
        // SAFETY: nothing is called.
        let answer = unsafe { table.aclFinalize() };
        assert_eq!(answer, Err(Absent("aclFinalize")));
    }

    #[test]
    fn the_environment_names_folders_and_custom_packages_in_order() {
        let packages = tempfile::tempdir().expect("a folder");
        let vendors = packages.path().join("vendors");
        std::fs::create_dir(&vendors).expect("a folder");
        std::fs::write(vendors.join("config.ini"), "load_priority=mine, theirs\n").expect("a file");
        let opp = packages.path().display().to_string();
        let search = Search::from_variables(|name| match name {
            "ASCEND_HOME_PATH" => Some("/home/cann".to_owned()),
            "ASCEND_CUSTOM_OPP_PATH" => Some("/first:/second".to_owned()),
            "ASCEND_OPP_PATH" => Some(opp.clone()),
            _ => None,
        });
        let expected = [
            PathBuf::from("/first/op_api/lib"),
            PathBuf::from("/second/op_api/lib"),
            vendors.join("mine/op_api/lib"),
            vendors.join("theirs/op_api/lib"),
        ];
        assert_eq!(search.custom, expected);
        assert_eq!(
            search.candidates("libascendcl.so"),
            [
                PathBuf::from("libascendcl.so"),
                PathBuf::from("/home/cann/lib64/libascendcl.so")
            ]
        );
    }
}
