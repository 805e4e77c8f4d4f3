#include "gpu_worker/service/execution_service.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/error.h"
#include "common/hash/hash.h"
#include "common/net/bearer.h"
#include "gpu_worker/service/pull_reactor.h"

namespace djinn::worker {
namespace {

bool Matches(const StreamLink::Identity& identity, const v1::BulkHello& hello) {
  return identity.session_id == hello.session_id() &&
         TokensEqual(hello.lease_token(), identity.token);
}

}  // namespace

StreamLink::ControlReactor* ExecutionService::Control(
    grpc::CallbackServerContext* context) {
  std::shared_ptr<StreamLink> link = StreamLink::Make(
      context, CountedStream(calls_, "djinn.v1.Execution/Control"),
      // The call may have ended when the core accepts it.
      [this,
       peer = context->peer()](const std::shared_ptr<StreamLink>& accepted) {
        if (unproven_ != nullptr) unproven_->NoteProven(peer);
        OnAccepted(accepted);
      });
  StreamLink::ControlReactor* const reactor = link->control();
  core_->Attach(link->MakeStream(), StreamWay::kNetwork);
  return reactor;
}

grpc::ServerBidiReactor<grpc::ByteBuffer, grpc::ByteBuffer>*
ExecutionService::Bulk(grpc::CallbackServerContext* context) {
  return BulkReactor::Begin(
      context, CountedStream(calls_, "djinn.v1.Execution/Bulk"),
      [this, context](BulkReactor* bulk, const v1::BulkHello& hello) {
        absl::StatusOr<std::string> lease_id = core_->LeaseOf(hello);
        if (!lease_id.ok()) return bulk->Refuse(lease_id.status());
        NoteProven(*context, unproven_);
        OnBulkHello(bulk, hello, *std::move(lease_id));
      },
      [this](BulkReactor* bulk) {
        MutexLock lock(&mu_);
        waiting_.erase(
            std::remove_if(waiting_.begin(), waiting_.end(),
                           [bulk](const Waiting& w) { return w.bulk == bulk; }),
            waiting_.end());
      });
}

grpc::ServerWriteReactor<v1::PullResponse>* ExecutionService::Pull(
    grpc::CallbackServerContext* context, const v1::PullRequest* request) {
  return PullReactor::Begin(
      context, CountedStream(calls_, "djinn.v1.Execution/Pull"), *request,
      core_, &send_order_, pull_socket_, unproven_);
}

void ExecutionService::OnAccepted(const std::shared_ptr<StreamLink>& link) {
  const StreamLink::Identity identity = link->identity();
  std::vector<std::shared_ptr<BulkReactor>> calls;
  {
    MutexLock lock(&mu_);
    links_.erase(std::remove_if(links_.begin(), links_.end(),
                                [](const std::weak_ptr<StreamLink>& known) {
                                  return known.expired();
                                }),
                 links_.end());
    links_.push_back(link);
    for (auto it = waiting_.begin(); it != waiting_.end();) {
      if (!Matches(identity, it->hello)) {
        ++it;
        continue;
      }
      // A listed call is not gone; the reference keeps it until it is attached.
      calls.push_back(it->bulk->shared_from_this());
      it = waiting_.erase(it);
    }
  }
  for (const std::shared_ptr<BulkReactor>& bulk : calls) {
    const absl::Status attached = link->AttachBulk(bulk.get());
    if (!attached.ok()) bulk->Refuse(attached);
  }
}

void ExecutionService::OnBulkHello(BulkReactor* bulk,
                                   const v1::BulkHello& hello,
                                   std::string lease_id) {
  std::shared_ptr<StreamLink> link;
  absl::Status refused;
  {
    MutexLock lock(&mu_);
    // Searches from the newest link: an older link of the same lease has ended.
    for (auto it = links_.rbegin(); it != links_.rend() && !link; ++it) {
      std::shared_ptr<StreamLink> known = it->lock();
      if (known != nullptr && Matches(known->identity(), hello)) {
        link = std::move(known);
      }
    }
    if (link == nullptr) {
      const auto others = std::count_if(
          waiting_.begin(), waiting_.end(),
          [&lease_id](const Waiting& w) { return w.lease_id == lease_id; });
      if (static_cast<size_t>(others) < StreamLink::kMaxBulkCalls) {
        waiting_.push_back({bulk, hello, std::move(lease_id)});
        return;
      }
      refused =
          MakeError(absl::StatusCode::kFailedPrecondition, "LEASE_IN_USE",
                    absl::StrCat(others, " Bulk streams wait with this lease"));
    }
  }
  if (refused.ok()) refused = link->AttachBulk(bulk);
  if (!refused.ok()) bulk->Refuse(refused);
}

}  // namespace djinn::worker
