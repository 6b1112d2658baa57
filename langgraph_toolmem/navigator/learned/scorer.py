from functools import lru_cache
def structural_fits(graph, views):
    @lru_cache(maxsize=None)
    def of(consumer):
        found = {}
        for port in graph.apis[views.names[consumer]].inputs:
            for link in graph.links_into(port):
                place = views.places[link.producer]
                found[place] = max(found.get(place, 0.0), link.fit * (1.0 if port.required else 0.7))
        return found
    return of
