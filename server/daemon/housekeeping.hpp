#pragma once

#include <sys/types.h>

#include <boost/asio/io_context.hpp>
#include <boost/asio/steady_timer.hpp>
#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "server/base/line_limit.hpp"
#include "server/base/task_group.hpp"
#include "server/daemon/server_context.hpp"
#include "server/daemon/service.hpp"
#include "server/nbd/worker.hpp"
#include "server/net/credentials/certificate_folder.hpp"
#include "storage/base/mutex.hpp"

namespace gpunbd::server {

// Logs that a file of TLS expires soon, or has expired, every day and when it expires.
class CertificateWatch final : public Service {
 public:
    explicit CertificateWatch(ServerContext& context) : context_(context), timer_(context.io) {}

    void open() override;
    void start() override { check_later(); }
    Commit reload(const config::Options& next, Problems& problems) override;
    void resume() override { check_later(); }
    void stop() override { timer_.cancel(); }

    // Of the files as they were loaded. Any thread.
    std::vector<Validity> validities() const;

 private:
    void check(std::vector<Validity> loaded);
    void check_later();

    ServerContext& context_;
    boost::asio::steady_timer timer_;
    mutable Mutex mutex_;
    std::vector<Validity> validities_ GUARDED_BY(mutex_);
};

// Process 1 of a container adopts orphaned processes, and has to reap them.
class AdoptedChildren final : public Service {
 public:
    static constexpr std::chrono::seconds interval{2};  // between two checks

    explicit AdoptedChildren(boost::asio::io_context& io);  // which must outlive this object

    void start() override { poll_.start(); }
    void resume() override { poll_.resume(); }
    // Reaps the children that had ended before the last check already. Other parts of this process,
    // and the libraries of drivers, wait for their own children, so that these are gone by then.
    void check();

 private:
    std::set<pid_t> ended_;  // at the last check
    Poll poll_;
};

// Returns the memory of a finished burst of requests or connections to the system. The C library
// keeps freed memory that lies below memory in use. malloc_trim() holds the lock of an arena for
// milliseconds, so it runs after the burst and on the main thread.
class HeapTrim final : public Service {
 public:
    using Workers = std::vector<std::unique_ptr<Worker>>;

    // The heap is trimmed after this many connections have ended; each took 10 to 50 KiB.
    static constexpr std::uint32_t connections_of_a_burst = 128;
    static constexpr std::chrono::seconds interval{2};  // between two checks

    using Trim = std::function<void()>;  // is called on the thread of `io`
    // `io` and `workers` must outlive this object.
    HeapTrim(boost::asio::io_context& io, const Workers& workers, Trim trim);
    // malloc_trim(0), for `trim`.
    static void trim_heap() noexcept;

    void start() override { poll_.start(); }
    void resume() override { poll_.resume(); }
    // Trims if a burst has ended since the last trim.
    void check();

 private:
    boost::asio::io_context& io_;
    const Workers& workers_;
    const Trim trim_;
    Poll poll_;
    std::uint32_t most_connections_ = 0;  // since the last trim
};

// Logs the number of omitted lines about clients (see LineLimit).
class OmittedLines final : public Service {
 public:
    // `io` must outlive this object, and `limit` must outlive `io`.
    OmittedLines(boost::asio::io_context& io, LineLimit& limit)
        : io_(io), limit_(limit), timer_(io) {}

    void start() override;
    void stop() override;

 private:
    void report_later();

    boost::asio::io_context& io_;
    LineLimit& limit_;
    boost::asio::steady_timer timer_;
    std::optional<LoopCalls> calls_;  // unset: stopped
};

// Gives up the right to gain privileges by executing set-user-ID programs.
class PrivilegeDrop final : public Service {
 public:
    explicit PrivilegeDrop(ServerContext& context) : context_(context) {}

    void open() override;

 private:
    ServerContext& context_;
};

// --pidfile: a file with the process id, which exists while the server is ready.
class PidFile final : public Service {
 public:
    explicit PidFile(std::string path) : path_(std::move(path)) {}
    // Removes the file, unless another server has written it since.
    ~PidFile() override;
    PidFile(const PidFile&) = delete;
    PidFile& operator=(const PidFile&) = delete;

    // Writes a draft beside the file. Throws std::runtime_error if that fails.
    void open() override;
    // Renames the draft, so that a reader never sees a part of it. Throws std::runtime_error.
    void start() override;
    // The file stays until the successor replaces it.
    void hand_over() override { keep_ = true; }

 private:
    const std::string path_;
    std::string draft_;  // its path until start()
    bool published_ = false;
    bool keep_ = false;
};

}  // namespace gpunbd::server
