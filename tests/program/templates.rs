//! Templates of models that are made to stop the server.

use std::{fs, path::Path};

use crate::program::{TINY_MODEL, failure, serve_arguments};

fn model_with(file: &str, template: &str) -> tempfile::TempDir {
    let directory = tempfile::tempdir().unwrap();
    for entry in fs::read_dir(TINY_MODEL).unwrap() {
        let path = entry.unwrap().path();
        if path.is_file() {
            fs::copy(&path, directory.path().join(path.file_name().unwrap())).unwrap();
        }
    }
    let path = directory.path().join(file);
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    fs::write(path, template).unwrap();
    directory
}

#[test]
fn a_models_template_that_cannot_be_read_within_the_bounds_is_an_error_at_start() {
    let nested = "{% if true %}".repeat(5_000);
    for file in ["chat_template.jinja", "additional_chat_templates/tool_use.jinja"] {
        for template in [nested.as_str(), &"a".repeat(300_000), "{{ a"] {
            let directory = model_with(file, template);
            let path = directory.path().join(Path::new(file));
            let said = failure(&serve_arguments(directory.path().to_str().unwrap(), &[]));
            assert!(said.contains(path.to_str().unwrap()) && said.contains("template line 1: "), "{said}");
        }
    }
}
