#include "tests/bench/sentences.h"

#include <random>

#include "absl/strings/str_cat.h"

namespace djinn::bench {
namespace {

constexpr const char* kWords[] = {
    "the",    "cat",   "outside", "man",   "plays", "guitar", "new",   "movie",
    "great",  "woman", "watches", "dog",   "in",    "garden", "river", "train",
    "late",   "city",  "people",  "water", "house", "small",  "music", "night",
    "reads",  "book",  "about",   "war",   "old",   "school", "north", "island",
    "market", "price", "rises",   "after", "rain",  "light",  "green", "field",
};

}  // namespace

std::vector<std::string> MakeSentences(uint64_t seed, size_t sentences,
                                       size_t words) {
  std::mt19937_64 generator(seed);
  std::vector<std::string> made(sentences);
  for (std::string& sentence : made) {
    for (size_t i = 0; i < words; ++i) {
      absl::StrAppend(&sentence, i == 0 ? "" : " ",
                      kWords[generator() % std::size(kWords)]);
    }
  }
  return made;
}

}  // namespace djinn::bench
