// Links a session to a coordinator that grants every lease and ends those that
// a test ends.
#ifndef TESTS_SCHEDULES_GRANTING_LINK_H_
#define TESTS_SCHEDULES_GRANTING_LINK_H_

#include <memory>
#include <string>

#include "client_lib/session/model/links.h"
#include "common/base/error.h"
#include "common/base/mutex.h"

namespace djinn::schedules {

// The coordinator's end of a link. It lives until DropSession() has returned.
class LinkEnd {
 public:
  virtual ~LinkEnd() = default;
  virtual void EndLease(const std::string& lease_id,
                        const std::string& reason) = 0;
};

// Thread-safe.
class Grantor {
 public:
  virtual ~Grantor() = default;
  // Grants a lease. `device` is the virtual device's index plus a hundred times
  // the number of the replica.
  virtual v1::Lease Grant(const std::string& session_id,
                          const std::string& tenant, int device,
                          LinkEnd* link) = 0;
  // Returns whether a virtual device may have more than one replica.
  virtual bool LetsSpan() const = 0;
  // Ends a lease that the session does not want any more.
  virtual void ReturnLease(const std::string& lease_id) = 0;
  // Ends a session that has closed.
  virtual void DropSession(const std::string& session_id) = 0;
};

class GrantingLink : public CoordinatorLink, public LinkEnd {
 public:
  GrantingLink(Grantor* grantor, std::string session_id, std::string tenant)
      : grantor_(grantor),
        session_id_(std::move(session_id)),
        tenant_(std::move(tenant)) {}

  absl::StatusOr<Opened> Open(const std::string&, absl::Duration,
                              CoordinatorEvents* events) override {
    MutexLock lock(&mu_);
    events_ = events;
    return Opened{session_id_, tenant_};
  }

  absl::StatusOr<v1::LeaseGranted> RequestLease(v1::LeaseRequest request,
                                                absl::Duration) override {
    if (request.member() > 0 && !grantor_->LetsSpan()) {
      return MakeError(absl::StatusCode::kResourceExhausted, "NO_CAPACITY",
                       "no other worker");
    }
    v1::LeaseGranted granted;
    granted.set_virtual_device(request.virtual_device());
    granted.set_member(request.member());
    granted.set_placement_reason("the only one");
    *granted.mutable_lease() = grantor_->Grant(
        session_id_, tenant_,
        static_cast<int>(request.virtual_device() + 100 * request.member()),
        this);
    return granted;
  }

  void ReturnLease(const std::string& lease_id, bool) override {
    grantor_->ReturnLease(lease_id);
  }
  void SendGraph(v1::Graph, v1::GraphNotes,
                 std::optional<v1::StageRequest>) override {}
  void ReportMigration(uint32_t, v1::MigrationOutcome) override {}
  void Report(v1::SessionRequest) override {}
  void CancelRequests() override {}

  absl::Status Close(absl::Duration) override {
    {
      MutexLock lock(&mu_);
      events_ = nullptr;
      while (calls_ > 0) call_ended_.Wait(&mu_);
    }
    grantor_->DropSession(session_id_);
    return absl::OkStatus();
  }

  void EndLease(const std::string& lease_id,
                const std::string& reason) override {
    CoordinatorEvents* events;
    {
      MutexLock lock(&mu_);
      events = events_;
      ++calls_;
    }
    if (events != nullptr) events->OnLeaseEnded(lease_id, reason);
    MutexLock lock(&mu_);
    --calls_;
    call_ended_.SignalAll();
  }

 private:
  Grantor* const grantor_;
  const std::string session_id_;
  const std::string tenant_;
  Mutex mu_;
  CondVar call_ended_;
  int calls_ ABSL_GUARDED_BY(mu_) = 0;
  CoordinatorEvents* events_ ABSL_GUARDED_BY(mu_) = nullptr;
};

}  // namespace djinn::schedules

#endif  // TESTS_SCHEDULES_GRANTING_LINK_H_
