#include "gpu_worker/store/disk_store.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <iterator>

#include "absl/algorithm/container.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "common/base/error.h"
#include "common/base/status_macros.h"
#include "common/base/tenant_order.h"
#include "common/log/log.h"
#include "common/transport/shared_memory/shared_region.h"
#include "gpu_worker/store/content_file.h"

namespace djinn::worker {
namespace {

constexpr char kDraft[] = ".part";
constexpr size_t kPieceBytes = 4 << 20;
// How long the store writes nothing after a failure.
constexpr absl::Duration kPause = absl::Seconds(5);

absl::Status DiskError(absl::string_view what, absl::string_view path) {
  return MakeError(absl::StatusCode::kFailedPrecondition, "CONTENT_DISK",
                   absl::StrCat(what, " ", path, ": ", std::strerror(errno)));
}

absl::Status Corrupt(absl::string_view what) {
  return absl::DataLossError(what);
}

}  // namespace

// A read of a content into a buffer.
class DiskStore::DiskLoad final : public ContentLoad {
 public:
  explicit DiskLoad(ContentRequest request)
      : settled_(std::move(request.settled)),
        buffer_(std::move(request.buffer)) {}

  bool settled() const override {
    MutexLock lock(&mu_);
    return outcome_.has_value();
  }
  bool ok() const override {
    MutexLock lock(&mu_);
    return outcome_.value_or(false);
  }
  void GiveUp() override { Settle(false); }

  void Settle(bool ok) {
    if (Decide(ok)) settled_();
  }
  // Sets the outcome. Returns false if there is one already; otherwise the
  // caller calls Announce().
  bool Decide(bool ok) {
    MutexLock lock(&mu_);
    if (outcome_.has_value()) return false;
    outcome_ = ok;
    return true;
  }
  void Announce() { settled_(); }
  // The thread that reads owns the buffer.
  Buffer* buffer() const { return buffer_.get(); }
  void ReleaseBuffer() { buffer_ = nullptr; }

 private:
  const std::function<void()> settled_;
  std::shared_ptr<Buffer> buffer_;
  mutable Mutex mu_;
  std::optional<bool> outcome_ ABSL_GUARDED_BY(mu_);
};

absl::StatusOr<std::unique_ptr<DiskStore>> DiskStore::Open(Options options,
                                                           Clock* clock) {
  std::unique_ptr<DiskStore> store(new DiskStore(std::move(options), clock));
  DJINN_RETURN_IF_ERROR(store->Prepare());
  return store;
}

DiskStore::~DiskStore() {
  Stop();
  if (lock_ >= 0) close(lock_);
}

absl::Status DiskStore::Prepare() {
  const std::string& directory = options_.directory;
  if (mkdir(directory.c_str(), 0700) != 0 && errno != EEXIST) {
    return DiskError("cannot make", directory);
  }
  struct stat status;
  if (lstat(directory.c_str(), &status) != 0) {
    return DiskError("cannot look at", directory);
  }
  if (!S_ISDIR(status.st_mode) || status.st_uid != geteuid() ||
      (status.st_mode & 077) != 0) {
    return MakeError(absl::StatusCode::kFailedPrecondition, "CONTENT_DISK",
                     absl::StrCat(directory,
                                  " must be a folder of this user, closed to "
                                  "others (mode 0700)"));
  }
  const std::string lock = absl::StrCat(directory, "/lock");
  lock_ = open(lock.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
  if (lock_ < 0) return DiskError("cannot write", lock);
  if (flock(lock_, LOCK_EX | LOCK_NB) != 0) {
    return DiskError("another process uses", directory);
  }
  MutexLock hold(&mu_);
  stats_.limit_bytes = options_.limit_bytes;
  std::vector<std::pair<timespec, std::pair<Key, uint64_t>>> found;
  for (const std::string& name : NamesIn(directory)) {
    if (name == "lock") continue;
    const std::string folder = absl::StrCat(directory, "/", name);
    for (const std::string& file : NamesIn(folder)) {
      const std::string path = absl::StrCat(folder, "/", file);
      if (absl::EndsWith(file, kDraft)) {
        unlink(path.c_str());
        continue;
      }
      const Descriptor fd(
          open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW));
      ContentFileHeader header = {};
      const bool whole =
          fd.valid() &&
          ReadAll(fd.get(), reinterpret_cast<char*>(&header), sizeof(header)) &&
          header.check == CheckOf(header) &&
          std::memcmp(header.magic, kContentFileMagic,
                      sizeof(kContentFileMagic)) == 0 &&
          header.tenant_size <= sizeof(header.tenant) &&
          fstat(fd.get(), &status) == 0 &&
          static_cast<uint64_t>(status.st_size) ==
              sizeof(header) + header.size_bytes;
      if (std::memcmp(header.magic, kFormerContentFileMagic,
                      sizeof(kFormerContentFileMagic)) == 0) {
        // The file is from the previous version of the store, which names files
        // by another hash: no request would find it.
        unlink(path.c_str());
        continue;
      }
      const Key key =
          whole ? Key(std::string(header.tenant, header.tenant_size),
                      {header.hash_high, header.hash_low}, header.size_bytes)
                : Key();
      if (!whole || PathOf(key) != path) {
        ++stats_.corrupt_files;
        log::Warning("removed a corrupt content file", {{"file", path}});
        unlink(path.c_str());
        continue;
      }
      found.push_back({status.st_mtim, {key, status.st_size}});
    }
  }
  std::sort(found.begin(), found.end(), [](const auto& a, const auto& b) {
    return std::pair(a.first.tv_sec, a.first.tv_nsec) <
           std::pair(b.first.tv_sec, b.first.tv_nsec);
  });
  for (const auto& [time, file] : found) Add(file.first, file.second);
  MakeRoom("", 0);
  return absl::OkStatus();
}

void DiskStore::Bind(Device* device, ContentCache* contents) {
  device_ = device;
  contents_ = contents;
}

void DiskStore::Start() {
  writer_ = std::thread([this] { RunWriter(); });
  reader_ = std::thread([this] { RunReader(); });
}

void DiskStore::Stop() {
  std::vector<Reading> to_read;
  {
    MutexLock lock(&mu_);
    stopping_ = true;
    for (auto& [name, tenant] : tenants_) {
      absl::c_move(tenant.to_read, std::back_inserter(to_read));
      tenant.to_read.clear();
    }
    write_changed_.SignalAll();
    read_changed_.SignalAll();
  }
  for (const Reading& reading : to_read) {
    reading.load->ReleaseBuffer();
    reading.load->Settle(false);
  }
  if (writer_.joinable()) writer_.join();
  if (reader_.joinable()) reader_.join();
}

std::string DiskStore::PathOf(const Key& key) const {
  const auto& [tenant, hash, size_bytes] = key;
  return absl::StrFormat("%s/%s/%016x%016x-%d", options_.directory,
                         FolderOf(tenant), hash.high, hash.low, size_bytes);
}

void DiskStore::Add(const Key& key, uint64_t bytes) {
  std::unique_ptr<File>& file = files_[key];
  if (file != nullptr) return;
  file = std::make_unique<File>();
  file->key = key;
  file->bytes = bytes;
  Tenant& tenant = tenants_[std::get<0>(key)];
  tenant.bytes += bytes;
  stats_.bytes += bytes;
  stats_.entries = files_.size();
  Use(file.get());
}

void DiskStore::Use(File* file) {
  Tenant& tenant = tenants_[std::get<0>(file->key)];
  tenant.order.erase({file->place, file});
  file->place = {tenant.floor + ++file->uses, ++last_use_};
  tenant.order.insert({file->place, file});
}

void DiskStore::Remove(const Key& key) {
  const auto found = files_.find(key);
  if (found == files_.end()) return;
  unlink(PathOf(key).c_str());
  File* const file = found->second.get();
  const auto tenant = tenants_.find(std::get<0>(key));
  stats_.bytes -= file->bytes;
  tenant->second.bytes -= file->bytes;
  tenant->second.order.erase({file->place, file});
  Tidy(tenant);
  files_.erase(found);
  stats_.entries = files_.size();
}

void DiskStore::Tidy(Tenants::iterator tenant) {
  const Tenant& left = tenant->second;
  if (left.order.empty() && left.to_write.empty() && left.to_read.empty()) {
    tenants_.erase(tenant);
  }
}

bool DiskStore::MakeRoom(const std::string& tenant, uint64_t bytes) {
  struct Part {
    uint64_t bytes = 0;
    absl::string_view tenant;
    Order::const_iterator next = {};
    Order::const_iterator end = {};
  };
  std::vector<Part> parts;
  if (!tenants_.contains(tenant)) parts.push_back({bytes, tenant});
  for (const auto& [name, of_tenant] : tenants_) {
    parts.push_back({of_tenant.bytes + (name == tenant ? bytes : 0), name,
                     of_tenant.order.begin(), of_tenant.order.end()});
  }
  std::vector<File*> going;
  uint64_t left = stats_.bytes + bytes;
  while (left > options_.limit_bytes) {
    // Names break ties.
    const auto most =
        absl::c_max_element(parts, [](const Part& a, const Part& b) {
          return std::tie(a.bytes, a.tenant) < std::tie(b.bytes, b.tenant);
        });
    if (most->next == most->end) return false;
    File* const file = (most->next++)->second;
    most->bytes -= file->bytes;
    left -= file->bytes;
    going.push_back(file);
  }
  for (File* const file : going) {
    tenants_[std::get<0>(file->key)].floor = file->place.first;
    ++stats_.evictions;
    const Key key = file->key;
    Remove(key);
  }
  return true;
}

bool DiskStore::MakePlace(const std::string& tenant, Pending* dropped) {
  if (waiting_.size() < options_.max_waiting) return true;
  ++stats_.failed_writes;
  stats_.failure = "too many contents wait for the disk";
  const auto most = absl::c_max_element(tenants_, [](auto& a, auto& b) {
    return a.second.to_write.size() < b.second.to_write.size();
  });
  const auto own = tenants_.find(tenant);
  const size_t with_this =
      own == tenants_.end() ? 1 : own->second.to_write.size() + 1;
  if (most == tenants_.end() || most->second.to_write.size() <= with_this) {
    return false;
  }
  *dropped = std::move(most->second.to_write.back());
  waiting_.erase(dropped->key);
  most->second.to_write.pop_back();
  Tidy(most);
  return true;
}

DiskStore::Tenants::iterator DiskStore::NextReader() {
  return NextInTurn(tenants_, last_reader_, [](const Tenant& tenant) {
    return !tenant.to_read.empty();
  });
}

void DiskStore::Keep(const std::string& tenant, const ContentHash& hash,
                     uint64_t size_bytes, bool found,
                     std::shared_ptr<void> pin) {
  Pending dropped;  // destroyed after the lock is released, as `pin` is
  MutexLock lock(&mu_);
  Key key(tenant, hash, size_bytes);
  const auto file = files_.find(key);
  if (file != files_.end()) {
    if (found) Use(file->second.get());
    return;
  }
  if (stopping_ ||
      size_bytes + sizeof(ContentFileHeader) > options_.limit_bytes ||
      tenant.size() > sizeof(ContentFileHeader::tenant)) {
    return;
  }
  if (waiting_.contains(key)) {
    if (!found) return;
    for (Pending& pending : tenants_[tenant].to_write) {
      if (pending.key != key) continue;
      pending.found = true;
      if (pin != nullptr) pending.pin.swap(pin);
    }
    return;
  }
  if (!MakePlace(tenant, &dropped)) return;
  waiting_.insert(key);
  tenants_[tenant].to_write.push_back(
      {std::move(key), clock_->Monotonic() + options_.write_after, found,
       std::move(pin)});
  write_changed_.Signal();
}

bool DiskStore::Has(const std::string& tenant, const ContentHash& hash,
                    uint64_t size_bytes) const {
  MutexLock lock(&mu_);
  return files_.contains(Key(tenant, hash, size_bytes));
}

bool DiskStore::Wants(uint64_t size_bytes) const {
  MutexLock lock(&mu_);
  return !stopping_ && size_bytes <= options_.limit_bytes &&
         options_.limit_bytes - size_bytes >= sizeof(ContentFileHeader) &&
         clock_->Monotonic() >= not_before_;
}

std::shared_ptr<ContentLoad> DiskStore::Load(ContentRequest request) {
  Key key(request.tenant, request.hash, request.buffer->size_bytes());
  MutexLock lock(&mu_);
  const auto file = files_.find(key);
  if (stopping_ || file == files_.end()) {
    ++stats_.misses;
    return nullptr;
  }
  Use(file->second.get());
  auto load = std::make_shared<DiskLoad>(std::move(request));
  tenants_[std::get<0>(key)].to_read.push_back({std::move(key), load});
  read_changed_.Signal();
  return load;
}

bool DiskStore::ReadOne() {
  Reading reading;
  {
    MutexLock lock(&mu_);
    const auto next = NextReader();
    if (next == tenants_.end()) return false;
    reading = std::move(next->second.to_read.front());
    next->second.to_read.pop_front();
    last_reader_ = next->first;
    Tidy(next);
  }
  absl::Status status;
  if (!reading.load->settled()) {
    status = Read(reading.key, *reading.load);
  }
  reading.load->ReleaseBuffer();
  bool in_time;
  bool evicted = false;
  {
    MutexLock lock(&mu_);
    in_time = reading.load->Decide(status.ok());
    ++(in_time && status.ok() ? stats_.hits : stats_.misses);
    if (absl::IsDataLoss(status)) {
      // The writer may have needed the room meanwhile.
      evicted = !files_.contains(reading.key);
      stats_.corrupt_files += evicted ? 0 : 1;
      Remove(reading.key);
    }
  }
  if (!status.ok() && !evicted && !absl::IsCancelled(status)) {
    log::Warning("content not read from disk",
                 {{"file", PathOf(reading.key)}, {"status", status}});
  }
  if (in_time) reading.load->Announce();
  return true;
}

absl::Status DiskStore::Read(const Key& key, const DiskLoad& load) {
  const auto& [tenant, hash, size_bytes] = key;
  const std::string path = PathOf(key);
  const Descriptor fd(open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW));
  if (!fd.valid()) {
    return errno == ENOENT ? Corrupt("the file is gone")
                           : DiskError("cannot open", path);
  }
  const auto read = [&](char* to, size_t size) {
    if (ReadAll(fd.get(), to, size)) return absl::OkStatus();
    return errno == 0 ? Corrupt("the file ends too soon")
                      : DiskError("cannot read", path);
  };
  const ContentFileHeader expected = MakeHeader(tenant, hash, size_bytes);
  ContentFileHeader header;
  DJINN_RETURN_IF_ERROR(read(reinterpret_cast<char*>(&header), sizeof(header)));
  if (std::memcmp(&header, &expected, sizeof(header)) != 0) {
    return Corrupt("the file is another content's");
  }
  std::string piece(std::min<uint64_t>(size_bytes, kPieceBytes), '\0');
  ContentHasher hasher;
  for (uint64_t at = 0; at < size_bytes; at += piece.size()) {
    if (stopping_ || load.settled()) {
      return absl::CancelledError("nobody waits for the content");
    }
    piece.resize(std::min<uint64_t>(size_bytes - at, kPieceBytes));
    DJINN_RETURN_IF_ERROR(read(piece.data(), piece.size()));
    hasher.Add(piece);
    DJINN_RETURN_IF_ERROR(device_->Write(load.buffer(), at, piece));
  }
  if (!(hasher.Hash() == hash)) {
    return Corrupt("the file's bytes are not those that were written");
  }
  // Records the last use for a process that opens the folder later.
  futimens(fd.get(), nullptr);
  return absl::OkStatus();
}

bool DiskStore::WriteOne() {
  Pending pending;
  {
    MutexLock lock(&mu_);
    const absl::Duration now = clock_->Monotonic();
    if (now < not_before_) return false;
    const auto next =
        NextInTurn(tenants_, last_writer_, [now](const Tenant& tenant) {
          return !tenant.to_write.empty() && tenant.to_write.front().due <= now;
        });
    if (next == tenants_.end()) return false;
    pending = std::move(next->second.to_write.front());
    next->second.to_write.pop_front();
    waiting_.erase(pending.key);
    last_writer_ = next->first;
    Tidy(next);
  }
  const auto& [tenant, hash, size_bytes] = pending.key;
  const std::shared_ptr<Buffer> buffer =
      contents_->Peek(tenant, hash, size_bytes);
  // The cache has one reference and this function one: no storage uses the
  // content any more.
  if (buffer == nullptr || (!pending.found && buffer.use_count() <= 2)) {
    return true;
  }
  {
    MutexLock lock(&mu_);
    if (!MakeRoom(tenant, sizeof(ContentFileHeader) + size_bytes)) return true;
  }
  const absl::Duration start = clock_->Monotonic();
  const absl::Status written = Write(pending.key, buffer);
  if (stopping_) return true;
  const absl::Duration end = clock_->Monotonic();
  if (written.ok()) contents_->SetCost(hash, buffer, end - start);
  bool news;
  {
    MutexLock lock(&mu_);
    const std::string failure(written.message());
    news = !written.ok() && stats_.failure != failure;
    stats_.failure = failure;
    if (!written.ok()) {
      ++stats_.failed_writes;
      not_before_ = end + kPause;
    }
  }
  if (news) log::Error("contents are not kept on disk", {{"status", written}});
  return true;
}

absl::Status DiskStore::Write(const Key& key,
                              const std::shared_ptr<Buffer>& buffer) {
  DJINN_ASSIGN_OR_RETURN(const SharedBytes bytes, device_->HostBytes(buffer));
  const std::string path = PathOf(key);
  const std::string folder = path.substr(0, path.rfind('/'));
  if (mkdir(folder.c_str(), 0700) != 0 && errno != EEXIST) {
    return DiskError("cannot make", folder);
  }
  const Descriptor directory(
      open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC | O_NOFOLLOW));
  if (!directory.valid()) return DiskError("cannot open", folder);
  const std::string draft = absl::StrCat(path, kDraft);
  absl::Status status = WriteFile(key, bytes.bytes, directory.get());
  if (!status.ok()) {
    unlink(draft.c_str());
    return status;
  }
  MutexLock lock(&mu_);
  Add(key, sizeof(ContentFileHeader) + bytes.bytes.size());
  return absl::OkStatus();
}

absl::Status DiskStore::WriteFile(const Key& key, absl::string_view bytes,
                                  int folder) {
  const auto& [tenant, hash, size_bytes] = key;
  const std::string path = PathOf(key);
  const std::string draft = absl::StrCat(path, kDraft);
  const Descriptor fd(
      open(draft.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW,
           0600));
  if (!fd.valid()) return DiskError("cannot write", draft);
  const ContentFileHeader header = MakeHeader(tenant, hash, size_bytes);
  // Finds out that the disk is full before writing, where the file system can
  // tell.
  const int reserved = posix_fallocate(
      fd.get(), 0, static_cast<off_t>(sizeof(header) + bytes.size()));
  if (reserved != 0 && reserved != EOPNOTSUPP && reserved != EINVAL) {
    errno = reserved;
    return DiskError("no room for", draft);
  }
  bool written = WriteAll(
      fd.get(), {reinterpret_cast<const char*>(&header), sizeof(header)});
  while (written && !bytes.empty() && !stopping_) {
    const absl::string_view piece = bytes.substr(0, kPieceBytes);
    written = WriteAll(fd.get(), piece);
    bytes.remove_prefix(piece.size());
  }
  if (stopping_) return absl::CancelledError("the worker stops");
  if (!written || fsync(fd.get()) != 0) return DiskError("cannot write", draft);
  if (rename(draft.c_str(), path.c_str()) != 0 || fsync(folder) != 0) {
    return DiskError("cannot name", path);
  }
  return absl::OkStatus();
}

void DiskStore::RunWriter() {
  for (;;) {
    while (!stopping_ && WriteOne()) {
    }
    MutexLock lock(&mu_);
    if (stopping_) return;
    const absl::Duration now = clock_->Monotonic();
    absl::Duration due = absl::InfiniteDuration();
    for (const auto& [name, tenant] : tenants_) {
      if (tenant.to_write.empty()) continue;
      due = std::min(due, std::max(tenant.to_write.front().due, not_before_));
    }
    if (due > now) clock_->Wait(&write_changed_, &mu_, due - now);
  }
}

void DiskStore::RunReader() {
  for (;;) {
    while (ReadOne()) {
    }
    MutexLock lock(&mu_);
    while (NextReader() == tenants_.end() && !stopping_) {
      read_changed_.Wait(&mu_);
    }
    if (stopping_) return;
  }
}

std::vector<ContentCache::Content> DiskStore::List() const {
  MutexLock lock(&mu_);
  std::vector<ContentCache::Content> contents;
  contents.reserve(files_.size());
  for (const auto& [key, file] : files_) {
    contents.push_back({std::get<0>(key), std::get<1>(key), std::get<2>(key)});
  }
  return contents;
}

std::optional<ContentStore::Stats> DiskStore::stats() const {
  MutexLock lock(&mu_);
  return stats_;
}

}  // namespace djinn::worker
