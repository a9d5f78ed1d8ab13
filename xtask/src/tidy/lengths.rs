//! Files of at most 800 lines and functions of at most 70, both without tests.
//!
//! A file that outgrows the bound holds more than one idea; a function that does cannot be read on
//! one screen. A function's length runs from the line of its signature to its closing brace;
//! attributes and documentation do not count. Code inside a macro's braces is not seen.

use syn::spanned::Spanned;
use syn::visit::{self, Visit};
use syn::{Block, Signature};

use super::Finding;
use super::reach::Reached;
use super::source::{Source, Sources};

const FILE_LINES_MAX: usize = 800;
const FUNCTION_LINES_MAX: usize = 70;

pub(super) fn check(sources: &Sources, reached: &Reached) -> Vec<Finding> {
    let mut findings = Vec::new();
    for (path, source) in sources.iter().filter(|(path, _)| !reached.is_test_only(path)) {
        if source.product_line_count > FILE_LINES_MAX {
            findings.push(Finding::new(
                path,
                1,
                format!("{} lines, more than {FILE_LINES_MAX}", source.product_line_count),
                "split it by idea into modules",
            ));
        }
        for function in functions(source) {
            if function.line_count > FUNCTION_LINES_MAX {
                findings.push(Finding::new(
                    path,
                    function.line,
                    format!(
                        "fn {} has {} lines, more than {FUNCTION_LINES_MAX}",
                        function.name, function.line_count
                    ),
                    "give each step a function with a name of its own",
                ));
            }
        }
    }
    findings
}

/// How many functions of the product the file holds.
pub(super) fn function_count(source: &Source) -> usize {
    functions(source).len()
}

struct Function {
    name: String,
    line: usize,
    line_count: usize,
}

fn functions(source: &Source) -> Vec<Function> {
    let mut found = Functions(Vec::new());
    found.visit_file(&source.product);
    found.0
}

struct Functions(Vec<Function>);

impl Functions {
    fn push(&mut self, signature: &Signature, body: &Block) {
        let line = signature.span().start().line;
        let line_count = body.span().end().line.saturating_sub(line) + 1;
        self.0.push(Function { name: signature.ident.to_string(), line, line_count });
    }
}

impl<'ast> Visit<'ast> for Functions {
    fn visit_item_fn(&mut self, function: &'ast syn::ItemFn) {
        self.push(&function.sig, &function.block);
        visit::visit_item_fn(self, function);
    }

    fn visit_impl_item_fn(&mut self, function: &'ast syn::ImplItemFn) {
        self.push(&function.sig, &function.block);
        visit::visit_impl_item_fn(self, function);
    }

    fn visit_trait_item_fn(&mut self, function: &'ast syn::TraitItemFn) {
        if let Some(body) = &function.default {
            self.push(&function.sig, body);
        }
        visit::visit_trait_item_fn(self, function);
    }
}

#[cfg(test)]
mod tests {
    use super::super::source::planted;
    use super::*;

    const PATH: &str = "crates/ip/src/lib.rs";

    fn findings_at(path: &str, text: &str) -> Vec<Finding> {
        check(&planted(&[(path, text)]), &Reached::default())
    }

    /// A function of exactly this many lines.
    fn function(line_count: usize) -> String {
        format!("fn long() {{\n{}}}\n", "    work();\n".repeat(line_count - 2))
    }

    #[test]
    fn a_long_file_is_found_and_one_line_less_is_not() {
        let lines = |count: usize| "// line\n".repeat(count);
        assert_eq!(findings_at(PATH, &lines(FILE_LINES_MAX)), []);
        let found = findings_at(PATH, &lines(FILE_LINES_MAX + 1));
        assert_eq!(found.len(), 1);
        assert!(found[0].to_string().starts_with("crates/ip/src/lib.rs:1: 801 lines"));
    }

    #[test]
    fn a_long_function_is_found_and_one_line_less_is_not() {
        assert_eq!(findings_at(PATH, &function(FUNCTION_LINES_MAX)), []);
        assert_eq!(findings_at(PATH, &function(FUNCTION_LINES_MAX + 1)).len(), 1);
        let method = format!("struct A;\nimpl A {{\n{}}}\n", function(FUNCTION_LINES_MAX + 1));
        assert_eq!(findings_at(PATH, &method)[0].line, 3);
        let default = format!("trait A {{\n{}}}\n", function(FUNCTION_LINES_MAX + 1));
        assert_eq!(findings_at(PATH, &default)[0].line, 2);
    }

    #[test]
    fn documentation_of_a_function_does_not_count() {
        let text = format!("{}{}", "/// why\n".repeat(40), function(FUNCTION_LINES_MAX));
        assert_eq!(findings_at(PATH, &text), []);
    }

    #[test]
    fn tests_do_not_count() {
        let module = format!("#[cfg(test)]\nmod tests {{\n{}}}\n", function(900));
        assert_eq!(findings_at(PATH, &module), []);
        assert_eq!(findings_at("crates/ip/src/route/tests.rs", &function(900)), []);
        assert_eq!(findings_at("crates/ip/tests/routes.rs", &function(900)), []);
        assert_eq!(findings_at(PATH, &function(900)).len(), 2);
    }
}
