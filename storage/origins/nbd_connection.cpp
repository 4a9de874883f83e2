#include "storage/origins/nbd_connection.hpp"

#include <fmt/format.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <new>
#include <string_view>
#include <utility>

#include "storage/origins/libnbd.hpp"

namespace gpunbd::storage {

namespace {

constexpr std::uint64_t largest_block = 4096;                    // bytes, of callers
constexpr std::uint64_t most_payload = std::uint64_t{32} << 20;  // bytes, of NBD
constexpr std::uint64_t unknown_minimum = 512;                   // bytes, as libnbd advises
constexpr std::uint64_t max_size = std::uint64_t{1} << 62;       // bytes; offsets stay signed
constexpr std::size_t longest_reason = 300;                      // bytes
constexpr const char* ended_by_server = "the server has ended the connection";
constexpr const char* allocation_context = "base:allocation";
constexpr std::uint32_t reads_as_zeroes = 2;  // NBD_STATE_ZERO

// libnbd's text for the last error of this thread, without the name of its function. It may have
// parts that the server has sent.
std::string last_reason(const Libnbd& nbd) {
    const char* const text = nbd.get_error();
    std::string_view reason = text == nullptr ? "unknown error" : text;
    if (const std::size_t colon = reason.find(": ");
        reason.starts_with("nbd_") && colon != std::string_view::npos) {
        reason.remove_prefix(colon + 2);
    }
    std::string out(reason.substr(0, longest_reason));
    std::ranges::replace_if(
        out, [](char each) { return static_cast<unsigned char>(each) < ' ' || each == '\x7f'; },
        '?');
    return out;
}

// What a user can do about a connection that was not made. `reason` is libnbd's.
std::string with_remedy(std::string reason) {
    const auto contains = [&](std::string_view part) {
        return reason.find(part) != std::string::npos;
    };
    const char* const remedy =
        contains("URI") || contains("scheme") ? "write for example nbd://host/image"
        : contains("no export")               ? "correct its name; nbdinfo --list URI shows all"
        : contains("TLS") || contains("gnutls") || contains("tls-")
            ? "use nbds: and tls-certificates=FOLDER or tls-psk-file=FILE exactly if the server "
              "uses TLS"
            : "start its server, or correct the address";
    return fmt::format("{}; {}", reason, remedy);
}

// A text of libnbd that the caller has to free.
std::string owned_text(char* text) {
    const std::unique_ptr<char, decltype(&std::free)> owner(text, &std::free);
    return text == nullptr ? std::string() : std::string(text);
}

}  // namespace

NbdConnection::NbdConnection(const Libnbd& nbd, Limits limits)
    : nbd_(nbd),
      limits_(limits),
      wake_(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)),
      handle_(nbd.create(), Close{&nbd}) {}

void NbdConnection::Close::operator()(nbd_handle* handle) const {
    if (nbd->aio_is_ready(handle) == 1) nbd->aio_disconnect(handle, 0);
    nbd->close(handle);
}

std::variant<std::unique_ptr<NbdConnection>, std::string> NbdConnection::open(
    const std::string& uri, Limits limits, bool with_map) {
    std::string missing;
    const Libnbd* const nbd = Libnbd::load(missing);
    if (nbd == nullptr) return missing;
    std::unique_ptr<NbdConnection> out(new NbdConnection(*nbd, limits));
    if (std::string why = out->connect(uri, with_map); !why.empty()) return why;
    if (std::string why = out->examine(); !why.empty()) return why;
    return out;
}

bool NbdConnection::is_over() const {
    return nbd_.aio_is_dead(handle_.get()) != 0 || nbd_.aio_is_closed(handle_.get()) != 0;
}

std::string NbdConnection::connect(const std::string& uri, bool with_map) {
    const Lock lock(mutex_);
    nbd_handle* const handle = handle_.get();
    if (handle == nullptr) return last_reason(nbd_);
    if (!wake_) return std::strerror(errno);
    if (nbd_.set_full_info(handle, true) != 0 || nbd_.set_uri_allow_local_file(handle, true) != 0 ||
        (with_map && nbd_.add_meta_context(handle, allocation_context) != 0)) {
        return last_reason(nbd_);
    }
    if (nbd_.aio_connect_uri(handle, uri.c_str()) != 0) return with_remedy(last_reason(nbd_));
    const auto until = Clock::now() + limits_.connect;
    std::string why = ended_by_server;
    while (nbd_.aio_is_ready(handle) != 1) {
        if (is_over()) return with_remedy(std::move(why));
        const auto left = std::chrono::ceil<std::chrono::milliseconds>(until - Clock::now());
        if (left.count() <= 0) {
            return with_remedy(fmt::format("no connection within {} ms", limits_.connect.count()));
        }
        if (nbd_.poll(handle, static_cast<int>(left.count())) >= 0) continue;
        if (nbd_.get_errno() == EINTR) continue;
        why = last_reason(nbd_);
        if (!is_over()) return with_remedy(std::move(why));
    }
    return {};
}

std::string NbdConnection::examine() {
    const Lock lock(mutex_);
    nbd_handle* const handle = handle_.get();
    const std::int64_t size = nbd_.get_size(handle);
    if (size < 0 || static_cast<std::uint64_t>(size) > max_size) {
        return fmt::format("its size is more than {} bytes; make it smaller on its server",
                           max_size);
    }
    exported_.size = static_cast<std::uint64_t>(size);
    // libnbd reports what the server sends; a failure is the same as nothing.
    const auto block_size = [&](int which, std::uint64_t otherwise) {
        const std::int64_t bytes = nbd_.get_block_size(handle, which);
        return bytes > 0 ? static_cast<std::uint64_t>(bytes) : otherwise;
    };
    const std::uint64_t minimum = block_size(LIBNBD_SIZE_MINIMUM, unknown_minimum);
    if (minimum > largest_block) {
        return fmt::format(
            "its server has blocks of at least {} bytes; make it accept blocks of {}", minimum,
            largest_block);
    }
    // A rest could be neither read nor written by requests of whole blocks.
    if (block_size(LIBNBD_SIZE_MINIMUM, 1) > 1 && exported_.size % minimum != 0) {
        return fmt::format(
            "its size of {} bytes is not a multiple of its blocks of {}; resize it on its server",
            exported_.size, minimum);
    }
    const std::uint64_t payload =
        std::min(block_size(LIBNBD_SIZE_MAXIMUM, most_payload), most_payload);
    exported_.max_payload = payload / largest_block * largest_block;
    if (exported_.max_payload == 0) {
        return fmt::format(
            "its server has requests of at most {} bytes; make it accept requests of {}", payload,
            largest_block);
    }
    exported_.is_read_only = nbd_.is_read_only(handle) != 0;
    exported_.can_flush = nbd_.can_flush(handle) == 1;
    exported_.can_zero = nbd_.can_zero(handle) == 1;
    exported_.can_multi_conn = nbd_.can_multi_conn(handle) == 1;
    exported_.has_map = nbd_.can_meta_context(handle, allocation_context) == 1;
    exported_.name = owned_text(nbd_.get_canonical_export_name(handle));
    exported_.description = owned_text(nbd_.get_export_description(handle));
    return {};
}

// --- requests ------------------------------------------------------------------------------------

template <typename Issue>
NbdConnection::Result NbdConnection::perform(Issue issue) {
    const auto end = [](void* request, int* /*error*/) {
        auto& ended = *static_cast<Request*>(request);
        ended.has_ended = true;
        ended.changed.notify_one();
        return 0;  // libnbd keeps the result until it is asked for it
    };
    Request request;
    const Lock lock(mutex_);
    nbd_handle* const handle = handle_.get();
    const std::int64_t cookie = issue(
        handle, nbd_completion_callback{.callback = end, .user_data = &request, .free = nullptr});
    // The thread that polls does not wait until the socket can be written to, or was closed.
    const bool is_blocked = (nbd_.aio_get_direction(handle) & LIBNBD_AIO_DIRECTION_WRITE) != 0;
    if (is_polled_ && (is_blocked || is_over())) ::eventfd_write(wake_.get(), 1);
    if (cookie < 0) return result_of(false);
    requests_.push_back(request);
    wait_for(request);
    requests_.erase(requests_.iterator_to(request));
    if (!is_polled_ && !requests_.empty()) requests_.front().changed.notify_one();
    const int completed = nbd_.aio_command_completed(handle, static_cast<std::uint64_t>(cookie));
    return result_of(completed > 0);
}

NbdConnection::Result NbdConnection::result_of(bool is_done) {
    if (is_done) return {};
    const int error = nbd_.get_errno();
    std::string answer = last_reason(nbd_);
    if (is_over()) {
        return {.outcome = Outcome::lost, .why = why_lost_.empty() ? ended_by_server : why_lost_};
    }
    if (error == ESHUTDOWN) return {.outcome = Outcome::lost, .why = std::move(answer)};
    return {.outcome = Outcome::refused,
            .why = std::move(answer),
            .is_unsupported = error == ENOTSUP || error == EOPNOTSUPP,
            .is_answer = true};
}

void NbdConnection::wait_for(Request& request) noexcept {
    const auto begin = Clock::now();
    while (!request.has_ended) {
        auto until =
            std::min(std::max(begin, progressed_at_) + limits_.progress, begin + limits_.request);
        if (has_given_up_) {
            until = Clock::time_point::max();
        } else if (Clock::now() >= until) {
            give_up();
            continue;
        }
        if (is_polled_) {
            request.changed.wait_until(
                mutex_, until, [&]() REQUIRES(mutex_) { return request.has_ended || !is_polled_; });
        } else {
            poll(until);
        }
    }
}

void NbdConnection::give_up() noexcept {
    has_given_up_ = true;
    set_why_lost();
    ::shutdown(nbd_.aio_get_fd(handle_.get()), SHUT_RDWR);
}

void NbdConnection::set_why_lost() noexcept {
    if (!why_lost_.empty()) return;
    try {
        why_lost_ = has_given_up_ ? "the server does not answer" : last_reason(nbd_);
    } catch (const std::bad_alloc&) {  // the reason stays unknown
    }
}

void NbdConnection::poll(Clock::time_point until) noexcept {
    nbd_handle* const handle = handle_.get();
    const unsigned direction = nbd_.aio_get_direction(handle);
    short events = 0;
    if ((direction & LIBNBD_AIO_DIRECTION_READ) != 0) events |= POLLIN;
    if ((direction & LIBNBD_AIO_DIRECTION_WRITE) != 0) events |= POLLOUT;
    std::array<pollfd, 2> files{{{.fd = nbd_.aio_get_fd(handle), .events = events, .revents = 0},
                                 {.fd = wake_.get(), .events = POLLIN, .revents = 0}}};
    constexpr std::chrono::milliseconds longest_poll{1'000'000};
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(until - Clock::now());
    is_polled_ = true;
    {
        const Unlock unlock(mutex_);
        ::poll(files.data(), files.size(),
               static_cast<int>(std::clamp(left, {}, longest_poll).count()));
    }
    is_polled_ = false;
    std::uint64_t wakes = 0;
    if (files[1].revents != 0) ::eventfd_read(wake_.get(), &wakes);
    const auto has = [&](int event) { return (files[0].revents & event) != 0; };
    // A request of another thread may have ended the connection. Its descriptor is closed then.
    if (files[0].revents == 0 || is_over()) return;
    progressed_at_ = Clock::now();
    // One of them: the first may change which of them libnbd expects.
    const int result = has(POLLOUT) && !has(POLLIN | POLLHUP) ? nbd_.aio_notify_write(handle)
                                                              : nbd_.aio_notify_read(handle);
    if (result != 0) set_why_lost();
}

NbdConnection::Result NbdConnection::read(std::uint64_t offset, std::span<std::byte> to) {
    return perform([&](nbd_handle* handle, nbd_completion_callback end) {
        return nbd_.aio_pread(handle, to.data(), to.size(), offset, end, 0);
    });
}

NbdConnection::Result NbdConnection::write(std::uint64_t offset, std::span<const std::byte> from) {
    return perform([&](nbd_handle* handle, nbd_completion_callback end) {
        return nbd_.aio_pwrite(handle, from.data(), from.size(), offset, end, 0);
    });
}

NbdConnection::Result NbdConnection::zero(std::uint64_t offset, std::uint64_t length,
                                          bool keeps_space) {
    return perform([&](nbd_handle* handle, nbd_completion_callback end) {
        return nbd_.aio_zero(handle, length, offset, end,
                             keeps_space ? LIBNBD_CMD_FLAG_NO_HOLE : 0);
    });
}

NbdConnection::Result NbdConnection::flush() {
    return perform([&](nbd_handle* handle, nbd_completion_callback end) {
        return nbd_.aio_flush(handle, end, 0);
    });
}

NbdConnection::Result NbdConnection::block_status(std::uint64_t offset, std::uint64_t length,
                                                  const OnExtent& extent) {
    const auto received = [](void* user_data, const char* context, std::uint64_t /*offset*/,
                             std::uint32_t* entries, std::size_t count, int* /*error*/) {
        if (std::string_view(context) != allocation_context) return 0;
        const auto& call = *static_cast<const OnExtent*>(user_data);
        for (std::size_t at = 0; at + 1 < count; at += 2) {
            call(entries[at], (entries[at + 1] & reads_as_zeroes) != 0);
        }
        return 0;
    };
    const nbd_extent_callback callback{
        .callback = received, .user_data = const_cast<OnExtent*>(&extent), .free = nullptr};
    return perform([&](nbd_handle* handle, nbd_completion_callback end) {
        return nbd_.aio_block_status(handle, length, offset, callback, end, 0);
    });
}

}  // namespace gpunbd::storage
