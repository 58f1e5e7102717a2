"""Why a prompt was not cached: told after the answer, from prompts seen shortly before."""
