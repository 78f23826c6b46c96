"""A trace, told one step at a time."""

from attnctl.verbs.story.chapters import Chapter, Story, story

__all__ = ["Chapter", "Story", "story"]
