// Turns a sealed segment into a run: slots by first use, bindings, holes, and
// the id of its structure, which is defined first when the stream does not have
// it yet.
//
// The local key under which a structure is found consists of everything but the
// varying values: operators and call templates, the slot of each touch, its
// access, and the kinds of the slots. Used by the sender thread only.
#ifndef CLIENT_LIB_SESSION_RUN_ENCODER_H_
#define CLIENT_LIB_SESSION_RUN_ENCODER_H_

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "client_lib/session/remote_storage.h"
#include "client_lib/session/segment.h"
#include "client_lib/session/structure_table.h"
#include "common/hash.h"
#include "common/srg/structure.h"
#include "djinn/v1/execution.pb.h"

namespace djinn {

class RunEncoder {
 public:
  explicit RunEncoder(StructureTable* table) : table_(table) {}

  // A structure to be defined before the run.
  struct Definition {
    v1::DefineStructure message;
    std::string fingerprint;  // as the worker must see it
  };
  // A structure to be told to the coordinator.
  struct Telling {
    ContentHash key_hash;  // names the structure inside this process
    v1::Structure structure;
  };
  struct Encoded {
    std::optional<Definition> definition;
    // Set when the structure was not used under `telling` yet.
    std::optional<Telling> telling;
    v1::Run run;
  };

  // Counts the segment's uses as sent: a storage that is dead and named by
  // nothing unsent any more is final in this run.
  Encoded Encode(const Segment& segment, uint64_t telling = 1);

  // The segment's structure; counts nothing.
  v1::Structure Describe(const Segment& segment);

  // Counts one use by a message other than a run as sent. True if the storage
  // is now dead and unnamed: the caller frees it.
  static bool ReleaseUse(RemoteStorage* storage);

 private:
  struct SlotState {
    RemoteStorage* storage;
    srg::Slot kind;
    uint64_t base_version;
    uint32_t writes;
    uint32_t uses;
    bool reads;
  };

  // Fills slots_ and slot_of_touch_.
  void AssignSlots(const Segment& segment);
  void BuildKey(const Segment& segment);
  srg::Structure BuildStructure(const Segment& segment) const;
  void FillBindings(v1::Run* run);

  StructureTable* const table_;
  uint64_t run_ = 0;
  // Reused between runs.
  std::vector<SlotState> slots_;
  std::vector<uint32_t> slot_of_touch_;
  std::string key_;
};

}  // namespace djinn

#endif  // CLIENT_LIB_SESSION_RUN_ENCODER_H_
