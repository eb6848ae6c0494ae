//! Acts as the sandbox's helper in the tests of this crate.

fn main() {
    adjutant_workspace::sandbox::helper_main_if_asked();
}
