// Models, as plain vectors, the values that a schedule's storages hold, and how
// every step must end. Not thread-safe.
#ifndef TESTS_SCHEDULES_MODEL_H_
#define TESTS_SCHEDULES_MODEL_H_

#include <cstdint>
#include <initializer_list>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "tests/schedules/schedule.h"

namespace djinn::schedules {

// Returns the values of an upload; equal for equal arguments.
std::vector<float> Content(int64_t number, int64_t count);

class Model {
 public:
  explicit Model(const Schedule& schedule)
      : scarce_(schedule.setup.memory == Memory::kScarce),
        tight_(schedule.setup.memory == Memory::kTight),
        recovers_(schedule.setup.recovers),
        storages_(schedule.storages) {}

  // Returns whether the step is possible now. In a shortened schedule some
  // steps are not.
  bool Possible(const Step& step) const;

  // Returns the number of elements that a read step asks for.
  int64_t ReadCount(const Step& step) const;

  // Notes a step that ended with `status`. `values` are the values that it
  // read; for kNonzero, they are as many values as the metadata promise.
  // Returns a complaint, or an empty string.
  std::string Apply(int index, const Step& step, const absl::Status& status,
                    const std::vector<float>& values);

  // Returns whether all of the storage can be read at the end.
  bool Readable(int storage) const { return IsTensor(storage, 1); }
  bool live(int storage) const { return storages_[storage].live; }
  int64_t count(int storage) const { return storages_[storage].data.size(); }

  // Return the numbers of calls that were executed, that failed, that were
  // skipped because of poison, and that were refused.
  uint64_t nodes() const { return nodes_; }
  uint64_t failed() const { return failed_; }
  uint64_t skipped() const { return skipped_; }
  uint64_t refused() const { return refused_.size(); }

 private:
  static constexpr int kNoPoison = -1;

  struct Storage {
    bool live = false;
    bool generator = false;
    bool seeded = false;
    // Exists, but the program cannot know its size.
    bool uncertain = false;
    bool uploaded = false;
    // False for the result of a refused graph. It has no size on the worker, so
    // no write is known to overwrite all of it.
    bool sized = true;
    uint64_t next_number = 0;
    // The step that failed first.
    int poison = kNoPoison;
    std::vector<float> data;
  };

  bool IsTensor(int storage, int64_t least) const;
  std::string Check(int index, const Step& step, const absl::Status& status,
                    const std::vector<float>& values);
  // Notes the value that a successful call computes. Returns a complaint if the
  // number of values is wrong, and otherwise an empty string.
  std::string Compute(int index, const Step& step,
                      const std::vector<float>& values);
  std::string CheckRead(const Step& step, const absl::Status& status,
                        const std::vector<float>& values);
  // Checks that `status` is the error of the step `root`.
  std::string CheckError(int root, const absl::Status& status);
  // Notes a call on `storage` that reads `operands`. Returns false if it is
  // skipped.
  bool Runs(Storage* storage, std::initializer_list<int> operands);
  void Fails(int index, const Step& step);
  Storage& At(int storage) { return storages_[storage]; }

  const bool scarce_;
  const bool tight_;
  // A call that fails fails again on the next worker, which gives the error
  // another id.
  const bool recovers_;
  std::vector<Storage> storages_;
  // The id of each root error seen so far, by step.
  std::map<int, std::string> error_ids_;
  // Steps whose graph was refused. Equal graphs may share an error.
  std::set<int> refused_;
  uint64_t nodes_ = 0;
  uint64_t failed_ = 0;
  uint64_t skipped_ = 0;
};

}  // namespace djinn::schedules

#endif  // TESTS_SCHEDULES_MODEL_H_
