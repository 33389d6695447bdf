"""The answer of each rule: the sentence, the evidence, the next commands and the numbers. Pure."""
