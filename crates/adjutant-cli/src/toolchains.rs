//! Which toolchains of this machine commands see: the settings about them, and the search.
//!
//! Start at [`ToolchainSettings::find`]. Every layer can only switch toolchains off: a project's file, the user's
//! file and `--no-toolchains` add up.

use std::collections::BTreeMap;
use std::path::PathBuf;

use adjutant_engine::WorkspaceSetup;
use adjutant_engine::toolchains::{
    FoundToolchain, SYSTEM_TOOLCHAIN, ToolchainLookup, find_toolchains, is_toolchain_name,
    tool_list, tool_summary, toolchain_names, without_toolchains,
};

use crate::exit::Failure;

/// The table `[toolchains]` of a configuration file.
#[derive(Default, serde::Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct ToolchainConfig {
    /// Whether commands see toolchains outside the system's directories; a project's file can only say `false`.
    enabled: Option<bool>,
    /// The names of toolchains that commands do not see.
    #[serde(default)]
    off: Vec<String>,
}

/// Which toolchains are switched off.
#[derive(Clone, Debug, Default)]
pub(crate) struct ToolchainSettings {
    all_off: bool,
    off: Vec<String>,
}

impl ToolchainConfig {
    /// Returns whether the table switches toolchains on, which a project's file may not.
    pub(crate) fn switches_on(&self) -> bool {
        self.enabled == Some(true)
    }
}

impl ToolchainSettings {
    /// Adds a table of a configuration file, named `origin` in errors.
    pub(crate) fn add(&mut self, config: &ToolchainConfig, origin: &str) -> Result<(), Failure> {
        self.all_off |= config.enabled == Some(false);
        self.switch_off(&config.off, &format!("{origin}: [toolchains] off"))
    }

    /// Adds the values of `--no-toolchains`. Without a name it switches off all.
    pub(crate) fn add_flag(&mut self, values: &[String]) -> Result<(), Failure> {
        let (all, names): (Vec<&String>, Vec<&String>) =
            values.iter().partition(|it| it.is_empty());
        self.all_off |= !all.is_empty();
        let names: Vec<String> = names.into_iter().cloned().collect();
        self.switch_off(&names, "--no-toolchains")
    }

    fn switch_off(&mut self, names: &[String], origin: &str) -> Result<(), Failure> {
        for name in names {
            if !is_toolchain_name(name) {
                let shown = adjutant_view::sanitize::line(name);
                let known: Vec<&str> = toolchain_names().collect();
                let text = format!("{origin}: `{shown}` is not a toolchain");
                return Err(
                    Failure::usage(text).hint(format!("The names are: {}.", known.join(", ")))
                );
            }
            if !self.off.contains(name) {
                self.off.push(name.clone());
            }
        }
        Ok(())
    }

    /// Finds the toolchains that commands see, and puts them into the setup.
    pub(crate) fn find(&self, setup: &mut WorkspaceSetup) {
        setup.no_toolchains = self.all_off;
        setup.toolchains_off.clone_from(&self.off);
        setup.toolchains = self.found();
    }

    fn found(&self) -> Vec<FoundToolchain> {
        let mut found = without_toolchains(find_toolchains(&lookup()), &self.off);
        found.retain(|it| !self.all_off || it.name == SYSTEM_TOOLCHAIN);
        found
    }

    /// Returns the findings of `doctor`: name, whether it is fine, explanation.
    pub(crate) fn findings(&self) -> Vec<(String, bool, String)> {
        let found = self.found();
        let seen = tool_summary(&found);
        let summary = match &seen {
            Some(tools) => tools.clone(),
            None => "no known compiler or interpreter".to_owned(),
        };
        let mut findings = vec![("commands see".to_owned(), seen.is_some(), summary)];
        let listed = tool_list(&found).into_iter();
        findings.extend(listed.map(|(name, text)| (format!("toolchain {name}"), true, text)));
        if self.all_off {
            let text =
                "switched off by [toolchains] in config.toml; commands see the system's tools only";
            findings.push(("toolchains".to_owned(), false, text.to_owned()));
        } else if !self.off.is_empty() {
            let text =
                format!("switched off by [toolchains] in config.toml: {}", self.off.join(", "));
            findings.push(("toolchains".to_owned(), false, text));
        }
        findings
    }
}

/// Returns the part of this process's environment that the search may use.
fn lookup() -> ToolchainLookup {
    let variables: BTreeMap<_, _> = std::env::vars_os()
        .filter_map(|(name, value)| Some((name.into_string().ok()?, value)))
        .collect();
    ToolchainLookup {
        home: std::env::var_os("HOME").map(PathBuf::from),
        variables,
        system_root: PathBuf::from("/"),
    }
}
