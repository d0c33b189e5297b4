package poll

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"pgregory.net/rapid"
)

func queue(n int) []*view {
	views := make([]*view, n)
	for i := range views {
		views[i] = &view{todo: i + 1}
	}
	return views
}

func TestChooseTakesEachAtMostOnceAndLosesNone(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		size, n, seed := rapid.IntRange(0, 40).Draw(t, "size"), rapid.IntRange(1, 10).Draw(t, "n"), rapid.Uint64().Draw(t, "seed")
		views := queue(size)
		chosen, rest := choose(views, n, rand.New(rand.NewPCG(seed, 1)).IntN)
		if len(chosen) != min(n, size) || len(chosen)+len(rest) != size {
			t.Fatalf("%d chosen, %d left of %d", len(chosen), len(rest), size)
		}
		seen := map[int]bool{}
		for _, v := range append(append([]*view(nil), chosen...), rest...) {
			if seen[v.todo] {
				t.Fatalf("%d twice", v.todo)
			}
			seen[v.todo] = true
		}
		for i := 1; i < len(rest); i++ {
			if rest[i-1].todo > rest[i].todo {
				t.Fatal("the rest lost its order")
			}
		}
		for i, v := range views {
			if v.todo != i+1 {
				t.Fatal("the views that were given were changed")
			}
		}
	})
}

// Two pollers side by side with 500 pending issues, n = 5.
func TestTwoPollersRarelyPickTheSame(t *testing.T) {
	t.Parallel()
	const draws = 200
	a, b := rand.New(rand.NewPCG(1, 1)), rand.New(rand.NewPCG(2, 2))
	same, most := 0, 0
	for range draws {
		one, _ := choose(queue(500), 5, a.IntN)
		two, _ := choose(queue(500), 5, b.IntN)
		overlap := 0
		for _, x := range one {
			for _, y := range two {
				if x.todo == y.todo {
					overlap++
				}
			}
		}
		same += overlap
		most = max(most, overlap)
	}
	if average := float64(same) / draws; average > 0.5 || most > 3 {
		t.Errorf("of 5 issues %.2f are the same on average, %d at most", average, most)
	}
}

func TestNoneWaitsForEver(t *testing.T) {
	t.Parallel()
	for seed := range uint64(20) {
		dice := rand.New(rand.NewPCG(seed, 3))
		views := queue(500)
		oldest, longest := 0, 0 // cycles that the first of the queue has waited
		cycles := 0
		for ; len(views) > 0; cycles++ {
			first := views[0]
			chosen, rest := choose(views, 5, dice.IntN)
			served := false
			for _, v := range chosen {
				served = served || v == first
			}
			if oldest++; served {
				oldest = 0
			}
			longest = max(longest, oldest)
			views = rest
		}
		if cycles != 100 {
			t.Errorf("seed %d: %d cycles for 500 issues", seed, cycles)
		}
		if longest > 12 {
			t.Errorf("seed %d: the longest waiting one waited %d cycles more", seed, longest)
		}
	}
}

// New issues keep coming as fast as they are served: the old ones are served
// all the same.
func TestNoneStarvesBehindNewOnes(t *testing.T) {
	t.Parallel()
	dice := rand.New(rand.NewPCG(7, 3))
	views := queue(500)
	born := map[*view]int{}
	longest := 0
	for cycle := range 5000 {
		chosen, rest := choose(views, 5, dice.IntN)
		for _, v := range chosen {
			longest = max(longest, cycle-born[v])
		}
		views = rest
		for len(views) < 500 {
			v := &view{}
			born[v] = cycle
			views = append(views, v)
		}
	}
	for _, v := range views {
		longest = max(longest, 5000-born[v])
	}
	if longest > 1100 { // 500 ahead at one every second cycle, and some luck
		t.Error(fmt.Sprint("one waited ", longest, " cycles"))
	}
}
