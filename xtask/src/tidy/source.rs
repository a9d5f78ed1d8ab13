//! A Rust file, parsed once for all rules.
//!
//! In: the text of every `.rs` file. Out: its syntax tree whole, and a second one without what is
//! compiled for tests only, so that a rule about the product need not ask at every node. Spans
//! survive the cut: line numbers are those of the file.

use std::collections::BTreeMap;

use proc_macro2::Span;
use syn::punctuated::Punctuated;
use syn::spanned::Spanned;
use syn::{Attribute, ImplItem, Item, Meta, Token, TraitItem};

use super::Finding;
use super::tree::Tree;

/// Every Rust file by its path from the root.
pub(super) type Sources = BTreeMap<String, Source>;

/// One Rust file.
pub(super) struct Source {
    /// Everything in the file.
    pub(super) whole: syn::File,
    /// The same without items that only a test build contains.
    pub(super) product: syn::File,
    /// Lines of the file that are not inside an item of a test build.
    pub(super) product_line_count: usize,
}

impl Source {
    fn parse(text: &str) -> syn::Result<Self> {
        let whole = syn::parse_file(text)?;
        let mut cut = Cut { line_count: 0 };
        let mut product = whole.clone();
        cut.items(&mut product.items);
        let product_line_count = text.lines().count().saturating_sub(cut.line_count);
        Ok(Self { whole, product, product_line_count })
    }
}

/// Parses every Rust file; one that cannot be parsed is a finding.
pub(super) fn parse_all(tree: &Tree) -> (Sources, Vec<Finding>) {
    let mut sources = Sources::new();
    let mut findings = Vec::new();
    for (path, text) in tree.texts().filter(|(path, _)| path.ends_with(".rs")) {
        match Source::parse(text) {
            Ok(source) => {
                sources.insert(path.to_owned(), source);
            }
            Err(error) => findings.push(Finding::new(
                path,
                error.span().start().line,
                format!("cannot be parsed ({error})"),
                "write Rust that the stable compiler takes",
            )),
        }
    }
    (sources, findings)
}

/// Whether a path alone says that the file is a test: below a `tests` directory, or `tests.rs`.
pub(super) fn is_test_path(path: &str) -> bool {
    path.split('/').any(|part| part == "tests" || part == "tests.rs")
}

/// Whether these attributes keep an item out of every build but a test's.
pub(super) fn is_test_only(attributes: &[Attribute]) -> bool {
    attributes.iter().any(|attribute| {
        attribute.path().is_ident("test")
            || attribute.path().is_ident("cfg")
                && attribute.parse_args::<Meta>().is_ok_and(|predicate| requires_test(&predicate))
    })
}

/// `test`, or `all(...)` with such a part; `any(test, ...)` and `not(test)` are product.
fn requires_test(predicate: &Meta) -> bool {
    if predicate.path().is_ident("test") {
        return true;
    }
    let Meta::List(list) = predicate else { return false };
    list.path.is_ident("all")
        && list
            .parse_args_with(Punctuated::<Meta, Token![,]>::parse_terminated)
            .is_ok_and(|parts| parts.iter().any(requires_test))
}

/// Takes items of test builds out of a tree and counts the lines they stood on.
struct Cut {
    line_count: usize,
}

impl Cut {
    fn items(&mut self, items: &mut Vec<Item>) {
        items.retain(|item| self.keeps(attributes_of(item), item.span()));
        for item in items {
            match item {
                Item::Mod(module) => {
                    if let Some((_, inner)) = &mut module.content {
                        self.items(inner);
                    }
                }
                Item::Impl(block) => block.items.retain(|inner| match inner {
                    ImplItem::Fn(function) => self.keeps(&function.attrs, function.span()),
                    _ => true,
                }),
                Item::Trait(block) => block.items.retain(|inner| match inner {
                    TraitItem::Fn(function) => self.keeps(&function.attrs, function.span()),
                    _ => true,
                }),
                _ => {}
            }
        }
    }

    fn keeps(&mut self, attributes: &[Attribute], span: Span) -> bool {
        let cut = is_test_only(attributes);
        if cut {
            self.line_count += line_count(span);
        }
        !cut
    }
}

/// Lines from the first of a span to its last, both counted.
pub(super) fn line_count(span: Span) -> usize {
    span.end().line.saturating_sub(span.start().line) + 1
}

fn attributes_of(item: &Item) -> &[Attribute] {
    match item {
        Item::Const(item) => &item.attrs,
        Item::Enum(item) => &item.attrs,
        Item::ExternCrate(item) => &item.attrs,
        Item::Fn(item) => &item.attrs,
        Item::ForeignMod(item) => &item.attrs,
        Item::Impl(item) => &item.attrs,
        Item::Macro(item) => &item.attrs,
        Item::Mod(item) => &item.attrs,
        Item::Static(item) => &item.attrs,
        Item::Struct(item) => &item.attrs,
        Item::Trait(item) => &item.attrs,
        Item::TraitAlias(item) => &item.attrs,
        Item::Type(item) => &item.attrs,
        Item::Union(item) => &item.attrs,
        Item::Use(item) => &item.attrs,
        _ => &[],
    }
}

#[cfg(test)]
pub(super) fn planted(files: &[(&str, &str)]) -> Sources {
    let (sources, findings) = parse_all(&Tree::planted(files));
    assert!(findings.is_empty(), "{findings:?}");
    sources
}

#[cfg(test)]
mod tests {
    use super::*;

    fn product_items(text: &str) -> (usize, usize) {
        let source = Source::parse(text).expect("planted text parses");
        (source.product.items.len(), source.product_line_count)
    }

    #[test]
    fn test_modules_are_cut_and_their_lines_not_counted() {
        assert_eq!(product_items("fn a() {}\n#[cfg(test)]\nmod tests {\n}\n"), (1, 1));
        assert_eq!(product_items("#[cfg(all(test, unix))]\nfn b() {\n}\n"), (0, 0));
        assert_eq!(product_items("#[test]\nfn c() {}\n"), (0, 0));
    }

    #[test]
    fn what_a_product_build_may_contain_stays() {
        assert_eq!(product_items("#[cfg(not(test))]\nfn a() {}\n"), (1, 2));
        assert_eq!(product_items("#[cfg(any(test, feature = \"x\"))]\nfn a() {}\n"), (1, 2));
    }

    #[test]
    fn a_file_that_does_not_parse_is_a_finding() {
        let (_, findings) = parse_all(&Tree::planted(&[("crates/ip/src/lib.rs", "\nfn (")]));
        assert_eq!(findings.len(), 1);
        assert_eq!(findings[0].line, 2);
    }

    #[test]
    fn test_paths() {
        assert!(is_test_path("crates/tcp/tests/two_stacks.rs"));
        assert!(is_test_path("crates/tcp/src/connection/tests.rs"));
        assert!(!is_test_path("crates/tcp/src/latest.rs"));
    }
}
