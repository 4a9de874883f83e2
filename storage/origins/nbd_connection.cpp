#include "storage/origins/nbd_connection.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <new>
#include <string_view>
#include <utility>

#include "storage/origins/libnbd.hpp"

namespace gpunbd::storage {

namespace {

using Clock = std::chrono::steady_clock;

constexpr std::uint64_t largest_block = 4096;                    // bytes, of callers
constexpr std::uint64_t most_payload = std::uint64_t{32} << 20;  // bytes, of NBD
constexpr std::uint64_t unknown_minimum = 512;                   // bytes, as libnbd advises
constexpr std::uint64_t max_size = std::uint64_t{1} << 62;       // bytes; offsets stay signed
constexpr std::size_t longest_reason = 300;                      // bytes
constexpr const char* ended_by_server = "the server has ended the connection";
constexpr nbd_completion_callback no_completion{
    .callback = nullptr, .user_data = nullptr, .free = nullptr};
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

// Lets libnbd go on until `is_over`. `why` becomes the reason of the last failure on the way; later
// calls of libnbd forget it.
enum class Wait : std::uint8_t { over, failed, late };
template <typename IsOver>
Wait wait_until(const Libnbd& nbd, nbd_handle* handle, IsOver is_over,
                std::chrono::milliseconds progress, std::chrono::milliseconds all,
                std::string& why) {
    const auto end = Clock::now() + all;
    auto next = Clock::now() + progress;
    while (!is_over()) {
        const auto now = Clock::now();
        const auto until = std::min(next, end);
        if (now >= until) return Wait::late;
        const auto left = std::chrono::ceil<std::chrono::milliseconds>(until - now).count();
        const int polled = nbd.poll(handle, static_cast<int>(left));
        if (polled > 0) next = Clock::now() + progress;
        if (polled >= 0 || nbd.get_errno() == EINTR) continue;
        why = last_reason(nbd);
        if (!is_over()) return Wait::failed;
    }
    return Wait::over;
}

}  // namespace

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
    handle_.reset(nbd_.create());
    nbd_handle* const handle = handle_.get();
    if (handle == nullptr) return last_reason(nbd_);
    if (nbd_.set_full_info(handle, true) != 0 || nbd_.set_uri_allow_local_file(handle, true) != 0 ||
        (with_map && nbd_.add_meta_context(handle, allocation_context) != 0)) {
        return last_reason(nbd_);
    }
    if (nbd_.aio_connect_uri(handle, uri.c_str()) != 0) return with_remedy(last_reason(nbd_));
    const auto is_connected = [&] { return nbd_.aio_is_ready(handle) == 1 || is_over(); };
    std::string why = ended_by_server;
    switch (wait_until(nbd_, handle, is_connected, limits_.connect, limits_.connect, why)) {
        case Wait::over:
        case Wait::failed:
            break;
        case Wait::late:
            return with_remedy(fmt::format("no connection within {} ms", limits_.connect.count()));
    }
    if (nbd_.aio_is_ready(handle) == 1) return {};
    return with_remedy(std::move(why));
}

std::string NbdConnection::examine() {
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

NbdConnection::Result NbdConnection::lose(std::string why) {
    handle_.reset();
    return {.outcome = Outcome::lost, .why = std::move(why)};
}

NbdConnection::Result NbdConnection::finish(std::int64_t cookie) {
    nbd_handle* const handle = handle_.get();
    int completed = cookie < 0 ? -1 : 0;
    int error = nbd_.get_errno();
    std::string answer = completed < 0 ? last_reason(nbd_) : std::string();
    // libnbd forgets the request once it has reported its end.
    const auto has_ended = [&] {
        if (completed != 0) return true;
        completed = nbd_.aio_command_completed(handle, static_cast<std::uint64_t>(cookie));
        if (completed < 0) {
            error = nbd_.get_errno();
            answer = last_reason(nbd_);
        }
        return completed != 0;
    };
    std::string failure;
    switch (wait_until(nbd_, handle, has_ended, limits_.progress, limits_.request, failure)) {
        case Wait::over:
            break;
        case Wait::failed:
            return lose(std::move(failure));
        case Wait::late:
            return lose("the server does not answer");
    }
    if (completed > 0) return {};
    if (is_over()) return lose(failure.empty() ? ended_by_server : std::move(failure));
    if (error == ESHUTDOWN) return lose(std::move(answer));
    return {.outcome = Outcome::refused,
            .why = std::move(answer),
            .is_unsupported = error == ENOTSUP || error == EOPNOTSUPP,
            .is_answer = true};
}

NbdConnection::Result NbdConnection::read(std::uint64_t offset, std::span<std::byte> to) {
    return finish(nbd_.aio_pread(handle_.get(), to.data(), to.size(), offset, no_completion, 0));
}

NbdConnection::Result NbdConnection::write(std::uint64_t offset, std::span<const std::byte> from) {
    return finish(
        nbd_.aio_pwrite(handle_.get(), from.data(), from.size(), offset, no_completion, 0));
}

NbdConnection::Result NbdConnection::zero(std::uint64_t offset, std::uint64_t length,
                                          bool keeps_space) {
    return finish(nbd_.aio_zero(handle_.get(), length, offset, no_completion,
                                keeps_space ? LIBNBD_CMD_FLAG_NO_HOLE : 0));
}

NbdConnection::Result NbdConnection::flush() {
    return finish(nbd_.aio_flush(handle_.get(), no_completion, 0));
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
    return finish(nbd_.aio_block_status(handle_.get(), length, offset, callback, no_completion, 0));
}

}  // namespace gpunbd::storage
