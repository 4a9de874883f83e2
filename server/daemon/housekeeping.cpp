#include "server/daemon/housekeeping.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <malloc.h>
#include <spdlog/spdlog.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <boost/asio/post.hpp>
#include <cerrno>
#include <charconv>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <filesystem>
#include <fstream>
#include <new>
#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>

#include "config/devices/device_drivers.hpp"
#include "server/base/file_checks.hpp"
#include "server/base/process.hpp"
#include "storage/assertions/assert.hpp"
#include "storage/base/owned_fd.hpp"

namespace gpunbd::server {

namespace {

namespace fs = std::filesystem;

// Whether /proc/PID/stat is that of a zombie child of this process; proc(5).
bool is_ended_child(const fs::path& stat) {
    std::ifstream file(stat);
    std::string text;
    std::getline(file, text);
    const std::size_t end_of_name = text.rfind(')');  // the name may contain any character
    if (end_of_name == std::string::npos) return false;
    const std::string ended = fmt::format(") Z {} ", ::getpid());
    return std::string_view(text).substr(end_of_name).starts_with(ended);
}

std::set<pid_t> ended_children() {
    std::set<pid_t> found;
    std::error_code error;
    for (fs::directory_iterator at("/proc", error), end; !error && at != end; at.increment(error)) {
        const std::string name = at->path().filename();
        pid_t pid = 0;
        const auto [stop, wrong] = std::from_chars(name.data(), name.data() + name.size(), pid);
        const bool number = wrong == std::errc{} && stop == name.data() + name.size();
        if (number && is_ended_child(at->path() / "stat")) found.insert(pid);
    }
    return found;
}

constexpr auto report_interval = std::chrono::seconds(1);

bool uses_gpus(const config::ExportList& exports) {
    return std::any_of(exports.begin(), exports.end(), [](const config::ExportOptions& each) {
        return (each.devices.empty() && each.clone_of.empty() && !each.is_template()) ||
               std::any_of(each.devices.begin(), each.devices.end(), config::is_gpu);
    });
}

std::runtime_error refusal(const std::string& path, const std::string& why) {
    return std::runtime_error(fmt::format("--pidfile {}: {}", path, why));
}

}  // namespace

void CertificateWatch::open() { check(server_validities(context_.options)); }

Service::Commit CertificateWatch::reload(const config::Options& next, Problems& /*problems*/) {
    return [this, loaded = server_validities(next)] { check(loaded); };
}

std::vector<Validity> CertificateWatch::validities() const {
    const Lock lock(mutex_);
    return validities_;
}

void CertificateWatch::check(std::vector<Validity> loaded) {
    const std::time_t now = std::time(nullptr);
    for (const Validity& each : loaded) {
        const auto warning = validity_warning(each, now);
        if (!warning) continue;
        spdlog::log(warning->invalid ? spdlog::level::err : spdlog::level::warn, "tls: {}",
                    warning->text);
    }
    const Lock lock(mutex_);
    validities_ = std::move(loaded);
}

void CertificateWatch::check_later() {
    constexpr std::time_t day = 24 * 3600;
    const std::time_t now = std::time(nullptr);
    std::time_t wait = day;
    for (const Validity& each : validities()) {
        if (each.until > now) wait = std::min(wait, each.until - now);
    }
    timer_.expires_after(std::chrono::seconds(wait));
    timer_.async_wait([this](boost::system::error_code error) {
        if (error) return;
        check(validities());
        check_later();
    });
}

AdoptedChildren::AdoptedChildren(boost::asio::io_context& io)
    : poll_(io, interval, [this] {
          try {
              check();
          } catch (const std::bad_alloc&) {
              // The next check retries.
          }
          return true;
      }) {}

void AdoptedChildren::check() {
    siginfo_t ended{};
    const bool any =
        ::waitid(P_ALL, 0, &ended, WEXITED | WNOHANG | WNOWAIT) == 0 && ended.si_pid != 0;
    std::set<pid_t> found = any ? ended_children() : std::set<pid_t>();
    std::erase_if(found, [this](pid_t child) {
        return ended_.contains(child) && ::waitpid(child, nullptr, WNOHANG) == child;
    });
    ended_ = std::move(found);
}

HeapTrim::HeapTrim(boost::asio::io_context& io, const Workers& workers, Trim trim)
    : io_(io), workers_(workers), trim_(std::move(trim)), poll_(io, interval, [this] {
          try {
              check();
          } catch (const std::bad_alloc&) {
              // The next check retries.
          }
          return true;
      }) {}

void HeapTrim::trim_heap() noexcept { ::malloc_trim(0); }

void HeapTrim::check() {
    std::uint32_t connections = 0;
    for (const auto& worker : workers_) connections += worker->connections();
    most_connections_ = std::max(most_connections_, connections);
    if (connections + connections_of_a_burst <= most_connections_) {
        most_connections_ = connections;
        trim_();
    }
    for (const auto& worker : workers_) {
        if (!worker->budget_had_burst()) continue;
        worker->post([&io = io_, trim = trim_](WorkerContext& its) {
            try {
                if (its.budget.end_burst()) boost::asio::post(io, trim);
            } catch (const std::bad_alloc&) {
                // Trimmed after the next burst.
            }
        });
    }
}

void OmittedLines::start() {
    calls_.emplace(io_);
    limit_.when_omitted([this, calls = calls_->poster()] {  // any thread, perhaps after stop()
        calls.post([this] { report_later(); });
    });
}

void OmittedLines::stop() {
    limit_.when_omitted(nullptr);
    calls_.reset();
    timer_.cancel();
    log_omitted_lines(limit_);
}

void OmittedLines::report_later() {
    timer_.expires_after(report_interval);
    timer_.async_wait([&limit = limit_](boost::system::error_code error) {
        if (!error) log_omitted_lines(limit);
    });
}

void PrivilegeDrop::open() {
    if (uses_gpus(context_.options.exports)) {
        // NVIDIA's driver executes a set-user-ID program that creates missing device nodes.
        std::string reason;
        static_cast<void>(context_.devices.first_gpu(reason));
    }
    give_up_new_privileges();
}

void PidFile::open() {
    // rename() would also replace a device.
    struct stat there {};
    if (::stat(path_.c_str(), &there) == 0 && !S_ISREG(there.st_mode)) {
        throw refusal(path_, "exists and is not a regular file; choose another path");
    }
    std::string draft = path_ + ".XXXXXX";
    const OwnedFd fd(::mkostemp(draft.data(), O_CLOEXEC));
    if (fd.get() < 0) throw refusal(path_, create_error(path_, errno));
    draft_ = draft;
    const std::string text = fmt::format("{}\n", ::getpid());
    constexpr mode_t readable_by_all = 0644;
    if (::write(fd.get(), text.data(), text.size()) != static_cast<ssize_t>(text.size()) ||
        ::fchmod(fd.get(), readable_by_all) != 0) {
        const int error = errno;
        ::unlink(draft_.c_str());
        throw refusal(path_, create_error(path_, error));
    }
}

PidFile::~PidFile() {
    if (!draft_.empty()) {
        ::unlink(draft_.c_str());
        return;
    }
    if (keep_ || !published_) return;
    std::ifstream file(path_);
    pid_t pid = 0;
    if (file >> pid && pid == ::getpid()) ::unlink(path_.c_str());
}

void PidFile::start() {
    GPUNBD_ASSERT(!draft_.empty() && !published_, "the file is published once, after its draft");
    if (::rename(draft_.c_str(), path_.c_str()) != 0) {
        throw refusal(path_, create_error(path_, errno));
    }
    draft_.clear();
    published_ = true;
}

}  // namespace gpunbd::server
