"""The OpenAI API's shapes: request in, events out. A pair of edge functions, no pipeline stage."""
