//! Hosts that nobody named before: a person is asked about each of them once in a run.

use super::Tree;
use crate::command::Effect;
use crate::event::Event;
use crate::ids::SessionId;
use crate::message::ToolCall;
use crate::time::Timestamp;
use crate::web_host::{HostSet, WEB_FETCH, asked_host};

/// How a host stands that the policy does not name.
#[derive(Clone, Debug)]
pub(super) enum HostApproval {
    /// A person is asked; these calls wait, each by its node and number.
    Asked { expires: Timestamp, waiting: Vec<(usize, u32)> },
    /// It may be asked.
    Allowed,
    /// It may not, for this reason.
    Denied(String),
}

impl Tree {
    /// Runs a call that may be run, unless it fetches from a host that needs a person's yes.
    pub(super) fn run_or_ask(
        &self,
        now: Timestamp,
        session: SessionId,
        number: u32,
        call: &ToolCall,
    ) -> Event {
        if call.name != WEB_FETCH {
            return Event::ToolCalled { session, call: number };
        }
        let host = match asked_host(&call.arguments) {
            Ok((_, host)) => host,
            Err(problem) => {
                let text = format!("Not run: {problem}.");
                return Event::ToolRefused { session, call: number, text };
            }
        };
        if self.policy.web_domains.contains(&host) {
            return Event::ToolCalled { session, call: number };
        }
        let expires = now.plus_seconds(self.policy.approval_s);
        match self.domains.get(&host) {
            Some(HostApproval::Allowed) => Event::ToolCalled { session, call: number },
            Some(HostApproval::Denied(reason)) => {
                Event::ToolRefused { session, call: number, text: denied(&host, reason) }
            }
            Some(HostApproval::Asked { expires, .. }) => {
                Event::DomainAsked { session, call: number, host, expires: *expires }
            }
            None => Event::DomainAsked { session, call: number, host, expires },
        }
    }

    /// Takes a person's yes. It counts for the run even where whoever wanted it is gone.
    pub(super) fn allow_domain(&self, host: String) -> Vec<Event> {
        let Some(waiting) = self.asks_about(&host) else { return Vec::new() };
        let calls = waiting.iter().map(|(node, call)| Event::ToolCalled {
            session: self.nodes[*node].session,
            call: *call,
        });
        std::iter::once(Event::DomainAllowed { host }).chain(calls).collect()
    }

    /// Takes a person's no, or the clock's.
    pub(super) fn deny_domain(&self, host: &str, reason: &str) -> Vec<Event> {
        let Some(waiting) = self.asks_about(host) else { return Vec::new() };
        let calls = waiting.iter().map(|(node, call)| Event::ToolRefused {
            session: self.nodes[*node].session,
            call: *call,
            text: denied(host, reason),
        });
        let fact = Event::DomainDenied { host: host.to_owned(), reason: reason.to_owned() };
        std::iter::once(fact).chain(calls).collect()
    }

    /// Returns the calls that wait for an answer about a host that has none yet.
    fn asks_about(&self, host: &str) -> Option<&[(usize, u32)]> {
        match self.domains.get(host) {
            _ if self.ended.is_some() => None,
            Some(HostApproval::Asked { waiting, .. }) => Some(waiting),
            Some(HostApproval::Allowed | HostApproval::Denied(_)) => None,
            None => Some(&[]),
        }
    }

    /// Says whether a call waits for a person's word about `host`.
    #[must_use]
    pub fn awaits_domain(&self, host: &str) -> bool {
        matches!(self.domains.get(host), Some(HostApproval::Asked { .. }))
    }

    /// Says whether a call was not run yet because it waits for a person's word.
    pub(super) fn is_held(&self, index: usize, call: u32) -> bool {
        let holds = |domain: &HostApproval| matches!(domain, HostApproval::Asked { waiting, .. } if waiting.contains(&(index, call)));
        self.domains.values().any(holds)
    }

    pub(super) fn expire_domains(&self, now: Timestamp) -> Vec<Event> {
        let due = self.domains.iter().filter(
            |(_, domain)| matches!(domain, HostApproval::Asked { expires, .. } if *expires <= now),
        );
        due.flat_map(|(host, _)| self.deny_domain(host, &self.nobody_answered())).collect()
    }

    /// Returns the first instant at which a question about a host goes stale.
    pub(super) fn next_stale_domain(&self) -> Option<Timestamp> {
        let expiry = |domain: &HostApproval| match domain {
            HostApproval::Asked { expires, .. } => Some(*expires),
            HostApproval::Allowed | HostApproval::Denied(_) => None,
        };
        self.domains.values().filter_map(expiry).min()
    }

    /// Folds in that a call waits for a person's word.
    pub(super) fn domain_asked(&mut self, index: usize, call: u32, host: &str, expires: Timestamp) {
        let fresh = || HostApproval::Asked { expires, waiting: Vec::new() };
        match self.domains.entry(host.to_owned()).or_insert_with(fresh) {
            HostApproval::Asked { waiting, .. } => waiting.push((index, call)),
            // Where content has expired all hosts have one name, and the first answer is for all.
            HostApproval::Allowed | HostApproval::Denied(_) => {}
        }
    }

    /// Drops one call that needs no answer any more, and the question only it asked.
    pub(super) fn let_go(&mut self, index: usize, call: u32) {
        self.domains.retain(|_, domain| match domain {
            HostApproval::Asked { waiting, .. } => {
                waiting.retain(|held| *held != (index, call));
                !waiting.is_empty()
            }
            HostApproval::Allowed | HostApproval::Denied(_) => true,
        });
    }

    /// Returns how many hosts a person has yet to decide about.
    pub(super) fn open_domains(&self) -> usize {
        self.domains.values().filter(|domain| matches!(domain, HostApproval::Asked { .. })).count()
    }

    /// Drops the calls of a delegation that has ended, and the questions only they asked.
    pub(super) fn forget_fetches(&mut self, index: usize) {
        self.domains.retain(|_, domain| match domain {
            HostApproval::Asked { waiting, .. } => {
                waiting.retain(|(node, _)| *node != index);
                !waiting.is_empty()
            }
            HostApproval::Allowed | HostApproval::Denied(_) => true,
        });
    }

    /// Returns the questions about hosts that nobody has answered. Each is put once, for the first call that wants
    /// the host.
    pub(super) fn open_domain_questions(&self) -> impl Iterator<Item = Effect> {
        self.domains.iter().filter_map(|(host, domain)| {
            let HostApproval::Asked { waiting, .. } = domain else { return None };
            let (index, call) = waiting.first()?;
            let node = &self.nodes[*index];
            let wanted = node.open_call(*call);
            let url = wanted.and_then(|call| asked_host(&call.arguments).ok());
            let url = url.map(|(url, _)| url.to_owned()).unwrap_or_default();
            Some(Effect::AskDomain { session: node.session, host: host.clone(), url })
        })
    }

    /// Lets every open question about a host stand until `until`, and forgets every no: it may have
    /// been said because nobody was there.
    pub(super) fn renew_domain_questions(&mut self, until: Timestamp) {
        self.domains.retain(|_, domain| !matches!(domain, HostApproval::Denied(_)));
        for domain in self.domains.values_mut() {
            if let HostApproval::Asked { expires, .. } = domain {
                *expires = until;
            }
        }
    }

    /// Returns the effect of a fetch that may be made: from this host, and on to those allowed.
    pub(super) fn fetch(
        &self,
        session: SessionId,
        turn: u32,
        index: u32,
        call: ToolCall,
    ) -> Option<Effect> {
        let (_, host) = asked_host(&call.arguments).ok()?;
        Some(Effect::Fetch { session, turn, index, call, host, hosts: self.allowed_hosts() })
    }

    fn allowed_hosts(&self) -> HostSet {
        let mut hosts = self.policy.web_domains.clone();
        for (host, domain) in &self.domains {
            if matches!(domain, HostApproval::Allowed) {
                hosts.insert(host);
            }
        }
        hosts
    }
}

fn denied(host: &str, reason: &str) -> String {
    format!(
        "Not fetched: {host} was not allowed ({reason}). Do without it, and do not try it again."
    )
}
