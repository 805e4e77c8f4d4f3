// A virtual device of an open session, on one worker or on several.
//
// It has *members*, one for each worker that it uses: each has a lease, a
// stream and an order of its own (remote_device.h). There is one as long as one
// will do, and then this class only hands every call to it. When that worker
// has no room for more, another one is asked for, and the device *spans*: each
// storage has a copy on some of its members (StorageCopies), a call is recorded
// on that member which lacks the fewest bytes of its operands and has room for
// its results, and what it lacks comes from worker to worker first. A write
// leaves the other copies stale; they are given back.
//
// What a spanning device does not do: it goes to no other worker. It fails as a
// whole when one member does.
//
// A program may ask for several workers from the first. Then the coordinator is
// asked how what the device repeats should be cut into stages; its answer says
// which member keeps which storage, and calls go where what they use is kept.
//
// A recording is carried out as a whole where the coordinator has a plan how
// its rows are shared out between the members: each has some of them, or all go
// through the members' stages in micro-batches. Others are refused
// (SPANS_WORKERS), and captured each time.
//
// What a member needs and another one has is fetched, or made again from what
// the member has: whichever is sooner, by what the workers measured.
//
// Sources: spanning_device.cc (what a program calls), _copies.cc (what is
// where), _recipes.cc (what is made again), _stages.cc (plans of stages),
// _batch.cc (recordings), _micro_batches.cc (those in stages), _members.cc (the
// members themselves).
//
// Threads: mu_ puts what the lanes do in one order once the device spans, and
// is held while a member takes a call, which may wait for that member's window.
// Members never call back into what takes it.
#ifndef CLIENT_LIB_SESSION_SPANNING_DEVICE_H_
#define CLIENT_LIB_SESSION_SPANNING_DEVICE_H_

#include <array>
#include <atomic>
#include <cstdint>
#include <limits>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/container/inlined_vector.h"
#include "absl/time/time.h"
#include "absl/types/span.h"
#include "client_lib/session/cut_structure.h"
#include "client_lib/session/held_value.h"
#include "client_lib/session/recipe.h"
#include "client_lib/session/recording.h"
#include "client_lib/session/remote_device.h"
#include "client_lib/session/row_shares.h"
#include "client_lib/session/session_context.h"
#include "client_lib/session/stage_order.h"
#include "client_lib/session/storage_copies.h"
#include "client_lib/session/virtual_device.h"
#include "client_lib/session/wait.h"
#include "common/mutex.h"

namespace djinn {

struct StageRecording;

class SpanningDevice final : public VirtualDevice {
 public:
  static constexpr int kMaxMembers = StorageCopies::kMaxMembers;

  // With one member.
  static std::shared_ptr<SpanningDevice> Make(
      int index, std::shared_ptr<SessionContext> context);

  int index() const override { return index_; }
  StoragePtr NewStorage(uint64_t size_bytes) override;
  void MarkDead(RemoteStorage* storage) override;
  absl::Status Record(uint32_t lane, Call* call) override;
  absl::StatusOr<std::vector<ResultMetadata>> RecordAndWait(
      uint32_t lane, Call* call) override;
  absl::Status Upload(uint32_t lane, RemoteStorage* storage,
                      SharedBytes source) override;
  absl::Status CopyFrom(uint32_t lane, RemoteStorage* storage,
                        RemoteStorage* source) override;
  absl::Status Seed(uint32_t lane, RemoteStorage* generator,
                    uint64_t seed) override;
  absl::Status Resize(uint32_t lane, RemoteStorage* storage,
                      uint64_t size_bytes) override;
  absl::Status Read(uint32_t lane, RemoteStorage* storage,
                    const srg::TensorView& view, void* destination,
                    uint64_t bytes) override;
  absl::StatusOr<std::unique_ptr<PendingRead>> StartRead(
      uint32_t lane, RemoteStorage* storage, const srg::TensorView& view,
      void* destination, uint64_t bytes) override;
  uint64_t VersionOf(const RemoteStorage& storage) override;
  HostValuePtr FindHostValue(const StorageAt& storage) override;
  void KeepHostValue(const StorageAt& written,
                     absl::Span<const StorageAt> operands, HostValuePtr value,
                     bool readable) override;
  absl::Status StartRecording(uint32_t lane) override;
  absl::StatusOr<std::shared_ptr<const Recording>> FinishRecording(
      uint32_t lane, absl::Span<RemoteStorage* const> given,
      absl::Span<RemoteStorage* const> outputs, size_t awaited) override;
  absl::Status RecordingRefusal(uint32_t lane) override;
  void DropRecording(uint32_t lane) override;
  absl::StatusOr<std::vector<StoragePtr>> Replay(
      uint32_t lane, const std::shared_ptr<const Recording>& recording,
      absl::Span<RemoteStorage* const> given) override;
  absl::Status RegisterModel(uint32_t lane, uint64_t model_id,
                             absl::string_view name,
                             std::vector<StoragePtr> storages) override;
  void ForgetModel(uint64_t model_id) override;
  absl::Status Synchronize() override;
  absl::StatusOr<DevicePlacement> Placement() override;

  // What the members cannot know.
  void AddStatistics(Statistics* sum) const;

  // How the coordinator would have a structure cut, or a recording's rows
  // shared out; called by its link.
  void OnStages(const v1::StageAnswer& answer);
  // Somebody asks for what the members have used.
  void OnMeter(uint32_t lane);

  // Those there are; after BeginClose() none is added.
  std::vector<std::shared_ptr<RemoteDevice>> Members() const;
  void BeginClose();

 private:
  static constexpr auto kOrdered = RemoteDevice::Caller::kOrdered;
  // The member where a recording's inputs are, mostly, and its outputs are put
  // together; as the coordinator has it.
  static constexpr int kHome = 0;

  SpanningDevice(int index, std::shared_ptr<SessionContext> context);

  // Of what a worker carried out.
  static bool IsRootError(const absl::Status& status);

  // The storages that a call names, while its touches name their copies.
  struct Use {
    StoragePtr storage;
    uint8_t access;
  };
  using Named = absl::InlinedVector<Use, 8>;
  // Where a call goes. `displaced`: not where most of its operands are.
  struct Choice {
    int member = 0;
    bool displaced = false;
    // A plan would have it there.
    bool kept = false;
  };
  // A call on its way to a member.
  struct Routed {
    int member = 0;
    Named named;
    // Of these its copies are no good: what it makes is poisoned, they go.
    // Until it is recorded they stay in doubt, for the next call to look at.
    absl::InlinedVector<RemoteStorage*, 2> unsound;
  };

  // --- What is where ---

  bool spans() const { return spans_.load(std::memory_order_acquire); }
  StorageCopies& CopiesOf(RemoteStorage* storage)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // The member's, made if there is none; of the storage's present size.
  RemoteStorage* CopyAt(RemoteStorage* storage, int member)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // The member that has the newest version first; where the last call went if
  // nothing wrote it.
  int HomeOf(RemoteStorage* storage) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  absl::StatusOr<Choice> Choose(const Call& call)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // For so many bytes that nothing ties to a member.
  int ChooseForBytes(uint64_t bytes) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // The program has dropped it, and nobody is about to use it.
  void Bury(RemoteStorage* storage);
  // Has the newest version come to the member. `remaining_seconds`: what waits
  // for it, as in OfferRank.
  absl::Status Bring(uint32_t lane, RemoteStorage* storage, int member,
                     double remaining_seconds = StageOrder::kUnknown)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  absl::Status BringGenerator(uint32_t lane, RemoteStorage* storage, int member)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // The member has the only newest version now.
  absl::Status Wrote(uint32_t lane, RemoteStorage* storage, int member)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // The member has it, too, or first.
  void Count(RemoteStorage* storage, int member)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // Waits for what was brought. What has come the member alone keeps from now
  // on; the others stay where they were, and are returned. `told`: the program
  // will not hear of their errors otherwise, and need not.
  absl::StatusOr<absl::InlinedVector<RemoteStorage*, 2>> Move(
      uint32_t lane, absl::Span<RemoteStorage* const> storages, int member,
      bool told) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // Waits for what was brought to the member: whether it is as good there as
  // where it came from. If not, `why` is the root error; other errors: it is
  // not known.
  absl::StatusOr<bool> HasCome(uint32_t lane, RemoteStorage* storage,
                               int member, absl::Status* why)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // Where something has failed since it was brought, looks whether that was it;
  // then the copy goes, for another one to be brought.
  absl::Status MakeSure(uint32_t lane, RemoteStorage* storage, int member)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // What the member has is no good.
  void DropCopy(RemoteStorage* storage, int member)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // The member's copy, which is there and does not count any more, makes room
  // for another one.
  void LetGo(RemoteStorage* storage, int member)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // Gives the copies back that others than the owner have.
  absl::Status GiveBack(uint32_t lane, RemoteStorage* storage)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);

  // --- What is made again ---

  // Why a value was fetched.
  enum class Fetched { kNotRepeatable, kOtherBits, kNotMeasured, kNotWorthIt };
  // What making a value on a member would take.
  struct Making {
    int member = 0;
    RemoteDevice::WorkerFacts facts;
    double seconds = 0;
    uint32_t calls = 0;
    // What it is made of and the program has; pinned.
    absl::flat_hash_map<HeldValue*, StoragePtr> operands;
    // Meaningful when it cannot be made.
    Fetched why = Fetched::kNotRepeatable;
  };

  // Of what the routed call will make; null where nobody could make it again.
  std::shared_ptr<const Recipe> RecipeFor(const Call& call,
                                          const Routed& routed)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // By carrying out there what made it, if that is cheap or worth it. False,
  // with no copy there, otherwise.
  absl::StatusOr<bool> MakeAgain(uint32_t lane, RemoteStorage* storage,
                                 int member) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  absl::StatusOr<bool> MakeIfWorthIt(uint32_t lane, RemoteStorage* storage,
                                     Making* making)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // Whether to make it, and not to fetch it; pins the operands.
  bool IsWorthMaking(RemoteStorage* storage, const Recipe& recipe,
                     Making* making) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // Adds what it takes. False: it cannot be made there, or would not be the
  // same.
  bool Weigh(const Recipe& recipe, Making* making)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  bool WeighOperand(const Recipe& recipe, uint32_t touch, Making* making)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void Unpin(Making* making) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // Has `target`, which is the member's and not born, hold what the recipe
  // makes.
  absl::Status Make(uint32_t lane, const Recipe& recipe, RemoteStorage* target,
                    const Making& making) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // Says in the log what was weighed, when it comes out otherwise than before.
  void Explain(const RemoteStorage& storage, const Making& making,
               double fetching_seconds, bool make)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);

  // --- Calls once it spans ---

  absl::Status CheckOwn(const Call& call) const;
  // Chooses a member, brings what it lacks, and has the call name its copies.
  absl::Status Route(uint32_t lane, Call* call, Routed* routed)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // Brings what the member lacks. False: a plan would have had the call there,
  // and the worker does not take what it should keep; that is forgotten.
  absl::StatusOr<bool> BringAll(uint32_t lane, const Call& call,
                                const Choice& choice, double remaining_seconds,
                                Routed* routed)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // After a call there. `recipe`: of what it made; may be null.
  absl::Status Settle(uint32_t lane, const Routed& routed,
                      std::shared_ptr<const Recipe> recipe = nullptr)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  absl::Status RecordSlow(uint32_t lane, Call* call);
  // `refusal`: the first member's, if it was asked and has no room.
  absl::Status UploadAnywhere(uint32_t lane, RemoteStorage* storage,
                              const SharedBytes& source, absl::Status refusal)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // For a copy to another device.
  absl::StatusOr<PullWork> Offer(uint32_t lane, RemoteStorage* storage);

  // --- Stages ---

  // Asks for the workers that the program wants from the first.
  void Spread() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // A question about a structure that waits for its answer.
  struct Question {
    v1::Structure structure;
    v1::StructureNotes notes;
    // What its slots were bound to.
    std::vector<uint64_t> storages;
    // Not null: it was cut before, by this.
    std::shared_ptr<CutStructure> cut;
  };

  // A member's sender saw a structure again: asks how to cut it. Where it is a
  // stage of one, asks now and then whether that should be cut otherwise.
  void OnRepeat(int member, RemoteDevice::RepeatedStructure repeated);
  // By one of these storages; null: none is placed.
  std::shared_ptr<CutStructure> CutOf(absl::Span<const uint64_t> storages) const
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(stages_mu_);
  // What the answer says of slots, in members; empty if it is not of the
  // structure, or not of this device.
  std::vector<int8_t> ReadMembers(const v1::StageAnswer& answer,
                                  size_t slots) const;
  // What is brought from now on is for the next of what the device repeats.
  void BeginRound() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // How long a run still takes from the call on, which goes to the member;
  // infinite: nobody knows. Once for each call.
  double RemainingFrom(const Call& call, int member)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // The member that a plan has keep it; -1: none has.
  int KeeperOf(RemoteStorage* storage) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // None has from now on.
  void ForgetKeeper(RemoteStorage* storage) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // Plans that name one of the copies name nothing.
  void ForgetPlanned(const RemoteStorage& storage, const StorageCopies& copies);

  // --- Recordings ---

  // One that is carried out, on some of its rows at each member.
  struct SharedReplay;
  // Stages of a recording, by the rows of a micro-batch.
  struct StagedRecording;
  // A member's storage of some rows.
  struct RowsAt {
    int member = 0;
    RemoteStorage* storage = nullptr;
  };
  // By slot and member: what a part is given there.
  using RowsGiven =
      absl::flat_hash_map<std::pair<uint32_t, int>, RemoteStorage*>;
  struct BytesAt {
    RemoteStorage* storage;
    uint64_t offset;
  };

  std::unique_ptr<Recorder> TakeRecorder(uint32_t lane);
  // A call of the program, before a member takes it.
  void NoteCall(uint32_t lane, const Call& call)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void RefuseRecording(uint32_t lane, absl::string_view reason,
                       absl::string_view what)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // Fills recording->sharing, and asks if nobody knows yet. FailedPrecondition
  // when its rows are not to be shared out.
  absl::Status FindSharing(Recording* recording);
  void AskForShares(const Recording& recording);
  void OnShares(const v1::StageAnswer& answer);
  absl::StatusOr<std::vector<StoragePtr>> ReplayShared(
      uint32_t lane, const std::shared_ptr<const Recording>& recording,
      absl::Span<RemoteStorage* const> given);
  // STALE_RECORDING where it is to be captured instead.
  absl::Status CheckShared(const SharedReplay& replay)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  absl::Status CheckRoomForParts(const SharedReplay& replay)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  absl::Status CheckRoomForStages(const SharedReplay& replay)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // Bytes that the member lacks of what is there whole.
  uint64_t LackedBytes(RemoteStorage* storage, int member)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  absl::StatusOr<std::vector<StoragePtr>> CarryOutParts(SharedReplay* replay)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // The recording's stages, cut when it is carried out first.
  absl::StatusOr<std::shared_ptr<const StagedRecording>> StagesOf(
      const std::shared_ptr<const Recording>& recording,
      const RowShares& shares) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  absl::StatusOr<std::vector<StoragePtr>> CarryOutInStages(SharedReplay* replay)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // Its rows of the outputs.
  absl::StatusOr<std::vector<RowsAt>> CarryOutMicroBatch(
      SharedReplay* replay, const RowShares::Part& part,
      absl::Span<const StageRecording> stages, const RowsGiven& rows_given)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // The outputs, of each part's rows of them.
  absl::StatusOr<std::vector<StoragePtr>> PutTogether(
      SharedReplay* replay, absl::Span<const std::vector<RowsAt>> made)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // What the part is given, at its member, and there what it keeps.
  absl::StatusOr<std::vector<RemoteStorage*>> BringGiven(
      SharedReplay* replay, const RowShares::Part& part)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // One of what it is given: the part's rows, or all of it if it has none.
  absl::StatusOr<RemoteStorage*> BringOneGiven(SharedReplay* replay,
                                               size_t index,
                                               const RowShares::Part& part)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  absl::Status BringWhole(uint32_t lane, RemoteStorage* storage, int member)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  absl::StatusOr<RemoteStorage*> BringRows(SharedReplay* replay,
                                           RemoteStorage* storage,
                                           const RowShares::Part& part,
                                           uint64_t row_bytes)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // Of a member's own storage: what has come of it at the other one.
  absl::StatusOr<RemoteStorage*> Send(
      SharedReplay* replay, RemoteStorage* storage, int from, int to,
      double remaining_seconds = StageOrder::kUnknown)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // By a call on the member, of its own storages.
  absl::Status CopyBytes(uint32_t lane, int member, const BytesAt& from,
                         const BytesAt& to, uint64_t bytes)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // A member's own storage.
  StoragePtr NewPart(uint64_t bytes);

  // --- Members ---

  std::shared_ptr<RemoteDevice> NewMember(int member, uint64_t needed_bytes);
  // False when there is no worker for it, or one was given and not reached a
  // short while ago; nothing has changed then.
  bool AddMember(uint64_t needed_bytes) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // The same for room that is only expected to be missing: not too often.
  bool AddMemberPatiently(uint64_t needed_bytes)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // Whether it spans, once it has looked for room that the first one lacks.
  bool SpansNow() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void OnFailure(int member, const absl::Status& failure);
  int count() const { return count_.load(std::memory_order_acquire); }
  int64_t RoomLeft(int member) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // As far as an upload may try: it can be refused without harm, and what was
  // learnt some time ago may be otherwise now.
  int64_t RoomToTry(int member) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // If it may hold so much in all.
  int64_t RoomBelow(int64_t limit, int member) const;
  // The worker has refused to hold so much more than what counts there.
  void LearnRoom(int member, int64_t more) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // It has taken an upload: forgets what says that it would not.
  void UnlearnRoom(int member) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);

  const int index_;
  const std::shared_ptr<SessionContext> context_;
  // members_[0], for calls that nothing keeps from it.
  RemoteDevice* first_ = nullptr;
  // Written before count_ says so, never changed then.
  std::array<std::shared_ptr<RemoteDevice>, kMaxMembers> members_;
  std::atomic<int> count_{0};
  // Calls have to look: it spans, or is about to need room.
  std::atomic<bool> looks_{false};
  std::atomic<bool> spans_{false};
  // Bytes of the live storages, by member.
  std::array<std::atomic<int64_t>, kMaxMembers> used_{};

  // As in Statistics.
  std::atomic<uint64_t> made_again_{0};
  std::atomic<uint64_t> bytes_not_fetched_{0};
  std::array<std::atomic<uint64_t>, 4> fetched_{};  // by Fetched
  // What recipes take that are not cheap.
  const std::shared_ptr<std::atomic<int64_t>> recipe_bytes_ =
      std::make_shared<std::atomic<int64_t>>(0);

  // Plans of stages so far.
  std::atomic<uint32_t> plans_{0};
  Mutex stages_mu_;  // a leaf
  uint64_t last_question_ ABSL_GUARDED_BY(stages_mu_) = 0;
  // By number.
  std::map<uint64_t, Question> questions_ ABSL_GUARDED_BY(stages_mu_);
  // Members' storages by id: what says which member is to keep what they hold.
  // What a CutStructure says changes under the lock.
  absl::flat_hash_map<uint64_t, PlacedSlot> kept_ ABSL_GUARDED_BY(stages_mu_);
  // By SharingKey(), and recordings by the number of the question about them.
  absl::flat_hash_map<std::string, std::shared_ptr<RowSharing>> sharings_
      ABSL_GUARDED_BY(stages_mu_);
  std::map<uint64_t, std::shared_ptr<const Recording>> share_questions_
      ABSL_GUARDED_BY(stages_mu_);

  mutable Mutex members_mu_;
  bool closing_ ABSL_GUARDED_BY(members_mu_) = false;

  Mutex mu_;
  // Of the recordings that are being made, by lane.
  absl::flat_hash_map<uint32_t, std::unique_ptr<Recorder>> recorders_
      ABSL_GUARDED_BY(mu_);
  // By the recording's number.
  absl::flat_hash_map<uint64_t, std::shared_ptr<const StagedRecording>> staged_
      ABSL_GUARDED_BY(mu_);
  // Where the last call went, and the last upload that nothing tied to a
  // member.
  int last_ ABSL_GUARDED_BY(mu_) = 0;
  int filling_ ABSL_GUARDED_BY(mu_) = 0;
  // In which what is brought now is needed, and by member how long the run
  // still takes from the last call there on.
  uint64_t round_ ABSL_GUARDED_BY(mu_) = 0;
  std::array<double, kMaxMembers> remaining_ ABSL_GUARDED_BY(mu_);
  // What a member may hold by its worker's last refusal, and when that was.
  struct LearntRoom {
    int64_t bytes = std::numeric_limits<int64_t>::max();
    absl::Duration at;
  };
  std::array<LearntRoom, kMaxMembers> learnt_room_ ABSL_GUARDED_BY(mu_);
  // By member, a bit each: the last value that was weighed for it was made.
  uint32_t makes_ ABSL_GUARDED_BY(mu_) = 0;
  // How many workers are to be asked for.
  int workers_wanted_ ABSL_GUARDED_BY(mu_) = 1;
  // Until when none more is asked for: where room is only expected to be
  // missing, and at all, after a worker that was given and not reached.
  Deadline patience_ ABSL_GUARDED_BY(mu_);
  Deadline long_patience_ ABSL_GUARDED_BY(mu_);
  // How long the last of these was.
  absl::Duration pause_ ABSL_GUARDED_BY(mu_);
};

}  // namespace djinn

#endif  // CLIENT_LIB_SESSION_SPANNING_DEVICE_H_
