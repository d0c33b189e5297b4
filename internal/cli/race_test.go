//go:build race

package cli

// underRace: the race detector makes every request some times as dear.
const underRace = true
