package poll

// choose picks n of the views, which come longest waiting first. Every second
// cycle on average the longest waiting one is among them, so that none waits
// for ever; all other places are drawn by lot, so that pollers that run side by
// side rarely pick the same.
func choose(views []*view, n int, intN func(int) int) (chosen, rest []*view) {
	if len(views) <= n {
		return views, nil
	}
	pool := append([]*view(nil), views...)
	pick := func(i int) {
		chosen = append(chosen, pool[i])
		pool = append(pool[:i], pool[i+1:]...)
	}
	if intN(2) == 0 {
		pick(0)
	}
	for len(chosen) < n {
		pick(intN(len(pool)))
	}
	return chosen, pool
}
