"""From a symptom to its cause: what was asked, the facts that brokers show, and a table of rules over them."""
