//! The graph of which story delegates to which, used to refuse cycles.
//!
//! A delegation may target an existing story, so this is a graph and not a tree. The search starts
//! at the child, looks for the parent, visits every story once and changes nothing.

use std::collections::BTreeMap;
use std::sync::Arc;

/// Edges from stories to the stories they delegate to.
///
/// Stories and edges are numbered and kept in flat lists: the search of a large graph is limited by
/// memory access.
#[derive(Clone, Debug, Default)]
pub struct StoryGraph {
    index: BTreeMap<Arc<str>, u32>,
    names: Vec<Arc<str>>,
    /// The first and last edge of each story; [`NONE`] if it has no edges.
    ends: Vec<(u32, u32)>,
    /// Each edge's child, and the next edge of the same story.
    edges: Vec<(u32, u32)>,
}

/// The number that stands for no edge or no story.
const NONE: u32 = u32::MAX;

impl StoryGraph {
    /// Records that `parent` delegates to `child`.
    pub fn connect(&mut self, parent: &str, child: &str) {
        let parent = self.intern(parent);
        let child = self.intern(child);
        let edge = number(self.edges.len());
        self.edges.push((child, NONE));
        let (first, last) = &mut self.ends[parent as usize];
        if *first == NONE {
            *first = edge;
        } else {
            self.edges[*last as usize].1 = edge;
        }
        *last = edge;
    }

    /// Says whether a story of that name is in the graph.
    #[must_use]
    pub fn contains(&self, name: &str) -> bool {
        self.index.contains_key(name)
    }

    /// Returns the cycle that an edge from `parent` to `child` would close, as `child → … → parent
    /// → child`; `None` if there is none.
    #[must_use]
    pub fn cycle_closed_by(&self, parent: &str, child: &str) -> Option<Vec<String>> {
        if parent == child {
            return Some(vec![parent.to_owned(), child.to_owned()]);
        }
        let (&goal, &start) = (self.index.get(parent)?, self.index.get(child)?);
        let came_from = self.search(start, goal)?;
        Some(self.trace(start, goal, &came_from))
    }

    /// Searches depth first without recursion: a long chain uses heap, not stack.
    ///
    /// Returns the predecessor of each visited story; the start is its own predecessor.
    fn search(&self, start: u32, goal: u32) -> Option<Vec<u32>> {
        let mut came_from = vec![NONE; self.names.len()];
        let mut open = vec![start];
        came_from[start as usize] = start;
        while let Some(story) = open.pop() {
            if story == goal {
                return Some(came_from);
            }
            let (mut edge, _) = self.ends[story as usize];
            while edge != NONE {
                let (child, next) = self.edges[edge as usize];
                if came_from[child as usize] == NONE {
                    came_from[child as usize] = story;
                    open.push(child);
                }
                edge = next;
            }
        }
        None
    }

    fn trace(&self, start: u32, goal: u32, came_from: &[u32]) -> Vec<String> {
        let before = |story: &u32| (*story != start).then(|| came_from[*story as usize]);
        let back = std::iter::successors(Some(goal), before);
        let name = |story: u32| self.names[story as usize].to_string();
        let mut path: Vec<String> = std::iter::once(start).chain(back).map(name).collect();
        path.reverse();
        path
    }

    fn intern(&mut self, name: &str) -> u32 {
        if let Some(&known) = self.index.get(name) {
            return known;
        }
        let name: Arc<str> = name.into();
        let number = number(self.names.len());
        self.index.insert(Arc::clone(&name), number);
        self.names.push(name);
        self.ends.push((NONE, NONE));
        number
    }
}

#[expect(clippy::expect_used, reason = "so many names or edges fit into no memory")]
fn number(place: usize) -> u32 {
    u32::try_from(place).expect("a graph has fewer than four thousand million parts")
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
    fn sixty_diamonds_are_searched_in_linear_time() {
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
