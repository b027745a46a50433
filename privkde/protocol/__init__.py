"""Who announces, sends, shuffles, counts and publishes: a collection from the announcement to the published model."""
