//! The graph of stories: who delegates to whom, by name.
//!
//! Story targets may name stories that exist already, so this is no tree. The search starts at the
//! child, looks for the parent, visits every story once and changes nothing.

use std::collections::BTreeMap;
use std::sync::Arc;

/// Edges from stories to the stories they delegate to.
#[derive(Clone, Debug, Default)]
pub struct StoryGraph {
    index: BTreeMap<Arc<str>, usize>,
    names: Vec<Arc<str>>,
    children: Vec<Vec<usize>>,
}

impl StoryGraph {
    /// Records that `parent` delegates to `child`.
    pub fn connect(&mut self, parent: &str, child: &str) {
        let parent = self.intern(parent);
        let child = self.intern(child);
        self.children[parent].push(child);
    }

    /// Says whether a story of that name is in the graph.
    #[must_use]
    pub fn contains(&self, name: &str) -> bool {
        self.index.contains_key(name)
    }

    /// Returns the cycle that an edge from `parent` to `child` would close, as
    /// `child → … → parent → child`, or nothing when it would close none.
    #[must_use]
    pub fn cycle_closed_by(&self, parent: &str, child: &str) -> Option<Vec<String>> {
        if parent == child {
            return Some(vec![parent.to_owned(), child.to_owned()]);
        }
        let (&goal, &start) = (self.index.get(parent)?, self.index.get(child)?);
        let came_from = self.search(start, goal)?;
        Some(self.trace(start, goal, &came_from))
    }

    /// Depth first without recursion: a chain of any length costs heap, not stack.
    fn search(&self, start: usize, goal: usize) -> Option<Vec<Option<usize>>> {
        let mut came_from = vec![None; self.names.len()];
        let mut visited = vec![false; self.names.len()];
        let mut open = vec![start];
        visited[start] = true;
        while let Some(story) = open.pop() {
            if story == goal {
                return Some(came_from);
            }
            for &child in &self.children[story] {
                if !visited[child] {
                    visited[child] = true;
                    came_from[child] = Some(story);
                    open.push(child);
                }
            }
        }
        None
    }

    fn trace(&self, start: usize, goal: usize, came_from: &[Option<usize>]) -> Vec<String> {
        let back = std::iter::successors(Some(goal), |story| came_from[*story]);
        let mut path: Vec<String> =
            std::iter::once(start).chain(back).map(|story| self.names[story].to_string()).collect();
        path.reverse();
        path
    }

    fn intern(&mut self, name: &str) -> usize {
        if let Some(&known) = self.index.get(name) {
            return known;
        }
        let name: Arc<str> = name.into();
        let number = self.names.len();
        self.index.insert(Arc::clone(&name), number);
        self.names.push(name);
        self.children.push(Vec::new());
        number
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn graph(edges: &[(&str, &str)]) -> StoryGraph {
        let mut graph = StoryGraph::default();
        edges.iter().for_each(|(parent, child)| graph.connect(parent, child));
        graph
    }

    fn cycle(edges: &[(&str, &str)], parent: &str, child: &str) -> Option<String> {
        graph(edges).cycle_closed_by(parent, child).map(|path| path.join(" → "))
    }

    #[test]
    fn an_edge_back_to_an_ancestor_closes_a_cycle() {
        // D10: the path is returned for the message, and a new parent or a leaf is no error.
        let edges = [("US-007", "US-007-DEL-001"), ("US-007-DEL-001", "US-009")];
        assert_eq!(
            cycle(&edges, "US-009", "US-007").as_deref(),
            Some("US-007 → US-007-DEL-001 → US-009 → US-007")
        );
        assert_eq!(cycle(&edges, "US-007", "US-009"), None);
        assert_eq!(cycle(&edges, "NEW", "US-007"), None);
        assert_eq!(cycle(&edges, "US-007", "NEW"), None);
        assert_eq!(cycle(&edges, "A", "A").as_deref(), Some("A → A"));
    }

    #[test]
    fn an_old_cycle_elsewhere_is_not_blamed_on_the_new_edge() {
        assert_eq!(cycle(&[("a", "b"), ("b", "a"), ("x", "a")], "x", "b"), None);
    }

    #[test]
    fn sixty_diamonds_are_searched_at_once() {
        // Without a visited set this takes 2^60 steps.
        let mut graph = StoryGraph::default();
        for i in 0..60 {
            for side in ["l", "r"] {
                graph.connect(&format!("n{i}"), &format!("{side}{i}"));
                graph.connect(&format!("{side}{i}"), &format!("n{}", i + 1));
            }
        }
        assert!(graph.cycle_closed_by("n60", "n0").is_some());
        assert!(graph.cycle_closed_by("elsewhere", "n0").is_none());
    }

    #[test]
    fn a_chain_of_a_hundred_thousand_does_not_overflow_the_stack() {
        let mut graph = StoryGraph::default();
        for i in 0..100_000 {
            graph.connect(&i.to_string(), &(i + 1).to_string());
        }
        let path = graph.cycle_closed_by("100000", "0").unwrap();
        assert_eq!(path.len(), 100_002);
    }
}
