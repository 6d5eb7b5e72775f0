//! Under which names a route keeps its records: they are part of what identifies an operation.

use http::Method;
use onceward::{
    Scope,
    store::{KeptRoute, LivingGroup},
};

use crate::config::{Pattern, Route, ScopePart, Segment};

/// The names for one method of a route.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Names {
    pub(crate) method: Method,
    /// `None`: the path of each request is a name of its own.
    pub(crate) operation: Option<String>,
    /// Those of the scope's parts, in the order of the configuration.
    pub(crate) parts: Vec<String>,
}

impl Names {
    /// As the configuration says.
    pub(crate) fn of(
        method: &Method,
        pattern: &Pattern,
        name: Option<&String>,
        scope: &[ScopePart],
    ) -> Self {
        let operation = match name {
            Some(name) => Some(name.clone()),
            None if pattern.has_rest() => None,
            None => Some(format!("{method} {}", pattern.text)),
        };
        let parts = scope.iter().map(ScopePart::stored_name).collect();
        Self { method: method.clone(), operation, parts }
    }

    /// Whether records of this operation are among those of the route; `path` is its pattern.
    pub(crate) fn includes(&self, operation: &str, pattern: &Pattern) -> bool {
        match &self.operation {
            Some(own) => own == operation,
            None => is_of_path(operation, self.method.as_str(), pattern),
        }
    }

    /// The row that says so in the store; where keys come from and go to is not in it yet.
    pub(crate) fn kept(&self, template: String, path: String) -> KeptRoute {
        let operation = self.operation.clone().unwrap_or_default();
        let parts = self.parts_text();
        KeptRoute { template, path, operation, parts, ..KeptRoute::default() }
    }

    fn parts_text(&self) -> String {
        let parts = self.parts.iter().filter(|part| **part != "global");
        let parts: Vec<_> = parts.map(|part| (part.as_str(), "-")).collect();
        match parts.is_empty() {
            true => LivingGroup::parts_of(&Scope::global()),
            // No request gets a scope of such parts either.
            false => {
                Scope::new(parts).map(|scope| LivingGroup::parts_of(&scope)).unwrap_or_default()
            }
        }
    }
}

impl Route {
    /// Its records of requests with this method.
    pub(crate) fn names(&self, method: &Method) -> Option<&Names> {
        self.names.iter().find(|names| names.method == *method)
    }

    /// The names under which this row kept the records of the same template, if they are those of the
    /// configuration but for the names of parameters.
    pub(crate) fn names_kept_by(&self, row: &KeptRoute, usual: &Names) -> Option<Names> {
        let before = Pattern::parse(&row.path).ok()?;
        let renamed = |part: &ScopePart| match part {
            ScopePart::Path(name) => {
                let at = self.pattern.names().position(|known| known == name)?;
                Some(ScopePart::Path(before.names().nth(at)?.to_owned()).stored_name())
            }
            part => Some(part.stored_name()),
        };
        let operation = match (&self.name, template_of(&row.operation)) {
            (None, Some(template)) if template == row.template => Some(row.operation.clone()),
            _ => usual.operation.clone(),
        };
        let parts = self.scope.iter().map(renamed).collect::<Option<_>>()?;
        let names = Names { method: usual.method.clone(), operation, parts };
        let kept = names.kept(row.template.clone(), row.path.clone());
        (kept.operation == row.operation && kept.parts == row.parts).then_some(names)
    }
}

impl Pattern {
    /// The path without the names of its parameters: `/v1/charges/{}`.
    pub(crate) fn without_names(&self) -> String {
        let text = |segment: &Segment| match segment {
            Segment::Literal(text) => text.clone(),
            Segment::One(_) => "{}".to_owned(),
            Segment::Rest(_) => "{*}".to_owned(),
        };
        let segments: Vec<_> = self.segments.iter().map(text).collect();
        format!("/{}", segments.join("/"))
    }

    pub(crate) fn has_rest(&self) -> bool {
        matches!(self.segments.last(), Some(Segment::Rest(_)))
    }
}

/// `POST /v1/charges/{}` for `POST /v1/charges/{id}`: the template of an operation that was named by its route.
pub(crate) fn template_of(operation: &str) -> Option<String> {
    let (method, path) = operation.split_once(' ')?;
    Some(format!("{method} {}", Pattern::parse(path).ok()?.without_names()))
}

/// Whether this operation was named by its path, which such a pattern covers.
pub(crate) fn is_of_path(operation: &str, method: &str, pattern: &Pattern) -> bool {
    let path = operation.strip_prefix(method).and_then(|rest| rest.strip_prefix(' '));
    path.is_some_and(|path| pattern.parameters(path).is_some())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn templates_have_no_names() {
        for (operation, template) in [
            ("POST /v1/charges/{id}", Some("POST /v1/charges/{}")),
            ("POST /v1/{a}/{*rest}", Some("POST /v1/{}/{*}")),
            ("POST /v1/%63harges", Some("POST /v1/charges")),
            ("charge.create", None),
            ("charge create", None),
        ] {
            assert_eq!(template_of(operation).as_deref(), template, "{operation}");
        }
    }
}
