// A question to a tenant, by which it proves that it has the bytes of a content
// that another tenant uploaded (content_proofs.h).
#ifndef GPU_WORKER_STORE_CONTENT_CHALLENGE_H_
#define GPU_WORKER_STORE_CONTENT_CHALLENGE_H_

#include <memory>
#include <string>

#include "gpu_worker/device/device.h"

namespace djinn::worker {

// Thread-safe, except for Take(). Destroying the challenge gives it up.
class ContentChallenge {
 public:
  virtual ~ContentChallenge() = default;

  // Returns the key under which the client computes the MAC of its bytes.
  virtual const std::string& key() const = 0;

  // Accepts the client's answer. Only the first one counts, and none after
  // Expire().
  virtual void Answer(std::string mac) = 0;
  // Settles the challenge because its deadline has passed.
  virtual void Expire() = 0;
  virtual bool answered() const = 0;

  // Returns whether Take() has the outcome.
  virtual bool settled() const = 0;
  // Returns the buffer whose bytes the client has proved to have, or null. Call
  // it once, when the challenge is settled.
  virtual std::shared_ptr<Buffer> Take() = 0;
};

}  // namespace djinn::worker

#endif  // GPU_WORKER_STORE_CONTENT_CHALLENGE_H_
