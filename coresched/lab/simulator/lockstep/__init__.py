"""A batch on workers that are engines of their own, kept in step with one virtual clock."""
