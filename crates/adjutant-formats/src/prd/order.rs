//! Which stories may run, and in which order.
//!
//! A story waits for its dependencies. Children are never run on their own: depending on a child means
//! waiting for the story it belongs to. The algorithms do not recurse and visit each edge once.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet, BinaryHeap};

use super::error::PrdError;
use super::finding::PrdFindings;
use super::read::Prd;
use super::story::Story;
use crate::nearest::nearest;

/// The maximum number of ancestors that are followed above a child.
///
/// More than any policy permits; it also ends the search if the parents form a cycle.
const MAX_LEVELS: usize = 8;

impl Prd {
    /// Returns the stories that do not pass yet, sorted by dependencies, then priority, then file order.
    ///
    /// # Errors
    ///
    /// [`PrdError::Cycle`] if stories that do not pass yet depend on each other.
    pub fn order(&self) -> Result<Vec<&Story>, PrdError> {
        let waits = self.open_dependencies();
        let mut blocks: BTreeMap<usize, Vec<usize>> = BTreeMap::new();
        for (place, dependencies) in &waits {
            for dependency in dependencies {
                blocks.entry(*dependency).or_default().push(*place);
            }
        }
        let ranks = self.ranks();
        let mut left: BTreeMap<usize, usize> =
            waits.iter().map(|(place, dependencies)| (*place, dependencies.len())).collect();
        let free = left.iter().filter(|(_, count)| **count == 0);
        let mut free: BinaryHeap<_> =
            free.map(|(place, _)| Reverse((ranks[*place], *place))).collect();
        let mut order = Vec::with_capacity(waits.len());
        while let Some(Reverse((_, place))) = free.pop() {
            order.push(&self.stories()[place]);
            left.remove(&place);
            for blocked in blocks.get(&place).into_iter().flatten() {
                if let Some(count) = left.get_mut(blocked) {
                    *count -= 1;
                    if *count == 0 {
                        free.push(Reverse((ranks[*blocked], *blocked)));
                    }
                }
            }
        }
        if left.is_empty() { Ok(order) } else { Err(self.cycle(&waits, &left)) }
    }

    /// Returns the story with this id, if it may run now.
    ///
    /// # Errors
    ///
    /// If there is no such story or it may not run now.
    pub fn select(&self, id: &str) -> Result<&Story, PrdError> {
        let Some(story) = self.story(id) else {
            return Err(PrdError::Unknown { id: id.to_owned(), nearest: self.nearest_id(id) });
        };
        let id = || story.id.clone();
        if let Some(parent) = story.parent() {
            return Err(PrdError::Child { id: id(), parent: parent.to_owned() });
        }
        if story.passes {
            return Err(PrdError::Passes { id: id() });
        }
        let waits_for = self.waits_for(story);
        if waits_for.is_empty() {
            return Ok(story);
        }
        let waits_for = waits_for.into_iter().map(str::to_owned).collect();
        Err(PrdError::NotReady { id: id(), waits_for })
    }

    /// Returns the dependencies of a story that do not pass yet.
    ///
    /// A passing child counts only once the story it belongs to passes, because that story contains its work.
    #[must_use]
    pub fn waits_for<'a>(&self, story: &'a Story) -> Vec<&'a str> {
        let passes = |place: usize| {
            let (own, top) = (&self.stories()[place], &self.stories()[self.top(place)]);
            own.passes && (top.passes || top.id == story.id)
        };
        let is_open = |id: &&str| !self.place(id).is_some_and(passes);
        let mut open: Vec<&str> =
            story.dependencies.iter().map(String::as_str).filter(is_open).collect();
        let mut seen = BTreeSet::new();
        open.retain(|id| seen.insert(*id));
        open
    }

    /// Returns the highest number used by the children of a story; numbers are never reused.
    #[must_use]
    pub fn last_child_number(&self, parent: &str) -> u32 {
        let number = |story: &Story| child_number(parent, &story.id);
        self.stories().iter().filter_map(number).max().unwrap_or(0)
    }

    /// Returns the index of a child's topmost ancestor, or the story's own index.
    fn top(&self, place: usize) -> usize {
        let mut at = place;
        for _ in 0..MAX_LEVELS {
            match self.stories()[at].parent().and_then(|parent| self.place(parent)) {
                Some(parent) => at = parent,
                None => break,
            }
        }
        at
    }

    /// Returns, for each story that may run, the indices of the stories it waits for.
    fn open_dependencies(&self) -> BTreeMap<usize, Vec<usize>> {
        let stories = self.stories().iter().enumerate().filter(|(_, story)| may_run(story));
        let open = |(place, story): (usize, &Story)| {
            let waits = self.waits_for(story).into_iter().filter_map(|id| self.place(id));
            let tops = waits.map(|dependency| self.top(dependency));
            let mut tops: Vec<usize> = tops.filter(|top| may_run(&self.stories()[*top])).collect();
            tops.sort_unstable();
            tops.dedup();
            (place, tops)
        };
        stories.map(open).collect()
    }

    /// Returns the rank of each story by priority.
    fn ranks(&self) -> Vec<usize> {
        let mut places: Vec<usize> = (0..self.stories().len()).collect();
        let priority = |place: usize| self.stories()[place].priority;
        places.sort_by(|a, b| priority(*a).order(priority(*b)));
        let mut ranks = vec![0; places.len()];
        let mut rank = 0;
        for pair in places.windows(2) {
            if priority(pair[0]).order(priority(pair[1])).is_ne() {
                rank += 1;
            }
            ranks[pair[1]] = rank;
        }
        ranks
    }

    /// Returns a cycle. Every remaining story waits for another remaining one, so following the dependencies
    /// finds one.
    fn cycle(
        &self,
        waits: &BTreeMap<usize, Vec<usize>>,
        left: &BTreeMap<usize, usize>,
    ) -> PrdError {
        let next = |place: usize| {
            let dependencies = waits.get(&place).into_iter().flatten();
            dependencies.copied().find(|dependency| left.contains_key(dependency))
        };
        let mut path = Vec::new();
        let mut seen: BTreeMap<usize, usize> = BTreeMap::new();
        let mut at = left.keys().next().copied();
        while let Some(place) = at {
            if let Some(&start) = seen.get(&place) {
                path.drain(..start);
                path.push(place);
                break;
            }
            seen.insert(place, path.len());
            path.push(place);
            at = next(place);
        }
        let name = |place: &usize| self.stories()[*place].id.clone();
        let node = path.first().and_then(|place| self.node(*place));
        let says = node.map(|node| node.member(&self.text, "dependencies").unwrap_or(node));
        let line = says.map_or(1, |node| PrdFindings::new(&self.text).line(node.range.start));
        PrdError::Cycle { line, path: path.iter().map(name).collect() }
    }

    fn nearest_id(&self, id: &str) -> Option<String> {
        let lower: Vec<String> =
            self.stories().iter().map(|story| story.id.to_lowercase()).collect();
        let found = nearest(id, lower.iter().map(String::as_str))?;
        let place = lower.iter().position(|id| id == found)?;
        Some(self.stories()[place].id.clone())
    }
}

/// Returns the child number in an id of the form `{parent}-DEL-{NNN}`; `None` for other ids.
#[must_use]
pub fn child_number(parent: &str, id: &str) -> Option<u32> {
    let rest = id.strip_prefix(parent)?.strip_prefix("-DEL-")?;
    rest.bytes().all(|byte| byte.is_ascii_digit()).then(|| rest.parse().ok())?
}

fn may_run(story: &Story) -> bool {
    !story.passes && story.parent().is_none()
}
