//! What an agent may call, acting inside a workspace.
