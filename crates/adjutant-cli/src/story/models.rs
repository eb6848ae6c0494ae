//! Which model works on a story: the one a person typed, else the one the PRD suggests with their
//! consent or out of those they let files choose, else the usual one.

use adjutant_engine::model_of_file;
use adjutant_formats::prd::{Prd, Story};
use adjutant_view::sanitize;

use super::consent::PrdConsent;
use crate::exit::Failure;
use crate::output::say;
use crate::wiring::{ChosenModel, Wiring};

/// The models that there are to choose from.
pub(super) struct StoryModels {
    wiring: Wiring,
    /// The usual one; why there is none where none was needed so far.
    usual: Result<ChosenModel, Failure>,
    /// Whether the usual one was typed: that outweighs what a file suggests.
    is_typed: bool,
    /// What files of a project may choose.
    allowed: Vec<String>,
}

impl StoryModels {
    /// Keeps the usual model; that there is none matters only if a story has no other.
    pub(super) fn new(
        usual: Result<ChosenModel, Failure>,
        wiring: Wiring,
        is_typed: bool,
        allowed: &[String],
        (prd, consent): (&Prd, &PrdConsent),
    ) -> Result<Self, Failure> {
        let models = Self { wiring, usual, is_typed, allowed: allowed.to_owned() };
        let is_left = |story: &&Story| !story.passes && story.parent().is_none();
        let mut left = prd.stories().iter().filter(is_left);
        match &models.usual {
            Ok(usual) => usual.remarks.iter().for_each(|it| say(&format!("adjutant: {it}"))),
            Err(_) if left.all(|story| models.wish(story, consent).is_some()) => {}
            Err(failure) => return Err(failure.clone()),
        }
        Ok(models)
    }

    /// Returns what the file suggests for a story, where that counts.
    fn wish<'story>(&self, story: &'story Story, consent: &PrdConsent) -> Option<&'story str> {
        let wish = story.suggested_model.as_deref().filter(|_| !self.is_typed)?;
        let is_allowed =
            || matches!(model_of_file(wish, self.running(), false, &self.allowed), Ok(Some(_)));
        (consent.is_given() || is_allowed()).then_some(wish)
    }

    fn running(&self) -> Option<&str> {
        self.usual.as_ref().ok().map(|usual| usual.model.spec().name.as_str())
    }

    /// Chooses the model of a story, and says so where it is not the usual one.
    pub(super) fn of(&self, story: &Story, consent: &PrdConsent) -> Result<ChosenModel, Failure> {
        let Some(wish) = self.wish(story, consent) else { return self.usual() };
        let (id, shown) = (&story.id, sanitize::line(wish));
        match (self.open(wish), &self.usual) {
            (Ok(chosen), _) => {
                say(&format!("adjutant: {id} is worked on by {shown}, as the PRD suggests"));
                chosen.remarks.iter().for_each(|it| say(&format!("adjutant: {it}")));
                Ok(chosen)
            }
            (Err(failure), Ok(usual)) => {
                let name = &usual.model.spec().name;
                say(&format!(
                    "adjutant: the PRD suggests {shown} for {id}, which cannot be used; it is worked on by {name}: {failure}"
                ));
                Ok(usual.clone())
            }
            (Err(failure), Err(_)) => Err(Failure::new(
                failure.exit,
                format!("the PRD suggests {shown} for {id}, which cannot be used: {failure}"),
            )),
        }
    }

    fn usual(&self) -> Result<ChosenModel, Failure> {
        self.usual.clone()
    }

    fn open(&self, wish: &str) -> Result<ChosenModel, Failure> {
        // Whether it may be chosen was judged before: by the person, or by what they list.
        match model_of_file(wish, self.running(), true, &self.allowed).map_err(Failure::usage)? {
            Some(name) => self.wiring.choose(Some(&name)),
            None => self.usual(),
        }
    }
}
