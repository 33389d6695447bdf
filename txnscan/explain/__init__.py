"""From a symptom to its cause: the question, the facts that brokers show, and a table of rules over them."""
