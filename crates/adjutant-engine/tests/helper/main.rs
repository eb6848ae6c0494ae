//! Acts as the helper of workspaces in the tests of this crate.

fn main() {
    adjutant_workspace::sandbox::helper_main_if_asked();
}
