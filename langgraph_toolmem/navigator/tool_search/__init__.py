"""Search for the tools that a request needs: a ranking of the whole catalogue, by words and by meaning.

``search``         the catalogue, and the search in it
``request``        a request as whole, sentences and clauses
``index``          words to tools (BM25 in fields)
``ranking``        signals of a tool and its toolkit, weighed
``precedents``     what past runs say: tools of similar requests, tools called before or with others
``prerequisites``  the tools to be called before a given one
``current``        the search over the tools that a memory knows now
``hit``            what is found
"""
