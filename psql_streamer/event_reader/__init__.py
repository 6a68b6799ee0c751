"""The way back: records that some instance wrote, in the formats of psql_streamer.events, become batches again."""
