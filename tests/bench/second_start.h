// The part of the second_start benchmark that runs in processes of its own.
#ifndef TESTS_BENCH_SECOND_START_H_
#define TESTS_BENCH_SECOND_START_H_

namespace djinn::bench {

// The argument before those of LoadModel().
inline constexpr char kLoadModel[] = "--load_model";

// COORDINATOR TOKEN_FILE TRANSPORT SEED MEBIBYTES: connects, brings a model of
// so much to the device, computes something with it, and says in a line how
// long that took, how many bytes it sent and what it computed. Returns the exit
// status.
int LoadModel(int argc, char** argv);

}  // namespace djinn::bench

#endif  // TESTS_BENCH_SECOND_START_H_
