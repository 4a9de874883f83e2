#include "tests/server/client.hpp"

#include <doctest/doctest.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <string_view>

#include "protocol/bytes.hpp"
#include "protocol/meta_context.hpp"
#include "protocol/request.hpp"

namespace gpunbd::server::test {

namespace {

using protocol::append_be;
using protocol::load_be;

constexpr std::uint32_t structured_reply = 8;
constexpr std::uint32_t set_meta_context = 10;
constexpr std::uint32_t extended_headers = 11;
constexpr std::uint32_t go = 7;
constexpr std::size_t piece = 256 * 1024;  // bytes received at once

void append_option(Bytes& out, std::uint32_t type, const Bytes& data) {
    append_be(out, protocol::option_magic);
    append_be(out, type);
    append_be(out, static_cast<std::uint32_t>(data.size()));
    out.insert(out.end(), data.begin(), data.end());
}

void append_text(Bytes& out, std::string_view text) {
    append_be(out, static_cast<std::uint32_t>(text.size()));
    const auto bytes = std::as_bytes(std::span(text));
    out.insert(out.end(), bytes.begin(), bytes.end());
}

}  // namespace

Bytes payload_of(const Ask& ask) {
    Bytes payload(ask.length);
    std::uint32_t state = ask.seed;
    for (std::byte& each : payload) {
        state = state * 1664525 + 1013904223;
        each = static_cast<std::byte>(state >> 24 | 1);
    }
    return payload;
}

protocol::Request request_of(const Ask& ask, std::uint64_t cookie, bool extended) {
    protocol::Request request{.flags = ask.flags,
                              .type = static_cast<std::uint16_t>(ask.type),
                              .cookie = cookie,
                              .offset = ask.offset,
                              .length = ask.length};
    if (!extended) return request;
    if (ask.type == CommandType::write) request.flags |= protocol::command_flag::payload_len;
    const bool has_payload = (request.flags & protocol::command_flag::payload_len) != 0;
    if (has_payload && ask.type == CommandType::block_status) {
        request.length = status_payload_of(ask).size();
    }
    return request;
}

Bytes encoded_header(const Ask& ask, std::uint64_t cookie, bool extended) {
    const protocol::Request request = request_of(ask, cookie, extended);
    Bytes bytes(extended ? protocol::extended_request_size : protocol::request_size);
    if (extended) {
        protocol::encode_extended_request(
            request, std::span(bytes).first<protocol::extended_request_size>());
    } else {
        protocol::encode_request(request, std::span(bytes).first<protocol::request_size>());
    }
    return bytes;
}

Bytes status_payload_of(const Ask& ask) {
    Bytes payload;
    append_be(payload, ask.length);
    for (const protocol::MetaContext context : protocol::all_contexts) {
        const std::uint32_t id = protocol::id_of(context);
        if ((ask.contexts >> id & 1) != 0) append_be(payload, id);
    }
    return payload;
}

Bytes encoded(const Ask& ask, std::uint64_t cookie, bool extended) {
    Bytes bytes = encoded_header(ask, cookie, extended);
    const bool asked_for = extended && ask.type != CommandType::disc &&
                           (ask.flags & protocol::command_flag::payload_len) != 0;
    const bool has_payload = ask.type == CommandType::write || asked_for;
    if (has_payload) {
        const Bytes payload =
            ask.type == CommandType::block_status ? status_payload_of(ask) : payload_of(ask);
        bytes.insert(bytes.end(), payload.begin(), payload.end());
    }
    return bytes;
}

Bytes handshake_bytes(const Handshake& handshake) {
    Bytes out;
    append_be(out, std::uint32_t{protocol::flag_fixed_newstyle | protocol::flag_no_zeroes});
    if (handshake.structured) {
        append_option(out, handshake.extended ? extended_headers : structured_reply, {});
        Bytes query;
        append_text(query, handshake.name);
        append_be(query, std::uint32_t{handshake.device ? 2U : 1U});
        append_text(query, "base:allocation");
        if (handshake.device) append_text(query, "gpunbd:device");
        append_option(out, set_meta_context, query);
    }
    Bytes name;
    append_text(name, handshake.name);
    append_be(name, std::uint16_t{0});
    append_option(out, go, name);
    return out;
}

Client::Client(Client&& other) noexcept
    : fd_(std::exchange(other.fd_, -1)),
      handshake_(std::move(other.handshake_)),
      last_cookie_(other.last_cookie_),
      pending_(std::move(other.pending_)),
      kept_(std::move(other.kept_)),
      received_(std::move(other.received_)),
      used_(other.used_),
      ended_(other.ended_),
      ended_within_(other.ended_within_),
      together_(other.together_) {}

Client::~Client() { close(); }

void Client::close() {
    if (fd_ >= 0) ::close(fd_);
    fd_ = -1;
}

void Client::reset() {
    const linger at_once{.l_onoff = 1, .l_linger = 0};
    REQUIRE(::setsockopt(fd_, SOL_SOCKET, SO_LINGER, &at_once, sizeof at_once) == 0);
    close();
}

void Client::shut_down_sending() const { ::shutdown(fd_, SHUT_WR); }

bool Client::readable() const {
    pollfd poll{.fd = fd_, .events = POLLIN, .revents = 0};
    return used_ != received_.size() || ::poll(&poll, 1, 0) == 1;
}

bool Client::wait_for(short events) {
    for (;;) {
        std::vector<pollfd> polls{{.fd = fd_, .events = events, .revents = 0}};
        for (const Client& other : together_) {
            const bool waits = &other != this && !other.ended_;
            polls.push_back({.fd = waits ? other.fd_ : -1, .events = POLLIN, .revents = 0});
        }
        const int ready = ::poll(polls.data(), polls.size(), guard);
        if (ready < 0 && errno == EINTR) continue;
        REQUIRE_MESSAGE(ready > 0, "the server hangs");
        for (std::size_t i = 0; i != together_.size(); ++i) {
            Client& other = together_[i];
            if (polls[i + 1].revents != 0 && !other.receive()) other.ended_ = true;
        }
        const short happened = polls[0].revents;
        if (happened != 0) return (happened & POLLIN) != 0 || (events & POLLIN) == 0;
    }
}

// Returns false if the connection has ended.
bool Client::receive() {
    received_.erase(received_.begin(), received_.begin() + static_cast<std::ptrdiff_t>(used_));
    used_ = 0;
    const std::size_t before = received_.size();
    received_.resize(before + piece);
    ssize_t got = 0;
    for (;;) {
        got = ::recv(fd_, received_.data() + before, piece, MSG_DONTWAIT);
        if (got >= 0 || (errno != EAGAIN && errno != EINTR)) break;
        static_cast<void>(wait_for(POLLIN));
    }
    received_.resize(before + static_cast<std::size_t>(std::max<ssize_t>(got, 0)));
    return got > 0;
}

std::optional<Bytes> Client::take(std::size_t count) {
    while (waits_ && !ended_ && received_.size() - used_ < count) {
        if (receive()) continue;
        ended_ = true;
        ended_within_ = received_.size() != used_;
    }
    if (received_.size() - used_ < count) return std::nullopt;
    const auto from = received_.begin() + static_cast<std::ptrdiff_t>(used_);
    used_ += count;
    return Bytes(from, from + static_cast<std::ptrdiff_t>(count));
}

// Receives replies while sending, because the server stops reading if it cannot send.
void Client::send_bytes(std::span<const std::byte> bytes) {
    while (!bytes.empty()) {
        const ssize_t sent = ::send(fd_, bytes.data(), bytes.size(), MSG_DONTWAIT | MSG_NOSIGNAL);
        if (sent >= 0) {
            bytes = bytes.subspan(static_cast<std::size_t>(sent));
        } else if (errno == EAGAIN) {
            if (wait_for(POLLIN | POLLOUT) && !receive()) return;
        } else if (errno != EINTR) {
            return;  // next() reports it
        }
    }
}

std::size_t Client::offer(std::span<const std::byte> bytes) {
    const ssize_t sent = ::send(fd_, bytes.data(), bytes.size(), MSG_DONTWAIT | MSG_NOSIGNAL);
    return sent > 0 ? static_cast<std::size_t>(sent) : 0;
}

std::optional<std::uint32_t> Client::shake_hands(bool sent) {
    const auto greeting = take(18);
    if (!greeting) return std::nullopt;
    REQUIRE(load_be<std::uint64_t>(greeting->data()) == protocol::init_magic);
    REQUIRE(load_be<std::uint64_t>(greeting->data() + 8) == protocol::option_magic);
    if (!sent) send_bytes(handshake_bytes(handshake_));
    for (;;) {
        const auto header = take(20);
        if (!header) return std::nullopt;
        REQUIRE(load_be<std::uint64_t>(header->data()) == protocol::option_reply_magic);
        const auto option = load_be<std::uint32_t>(header->data() + 8);
        const auto type = load_be<std::uint32_t>(header->data() + 12);
        if (!take(load_be<std::uint32_t>(header->data() + 16))) return std::nullopt;
        if (option != go || type == 3) continue;
        return type == 1 ? 0 : type;
    }
}

bool Client::enter_or_fail() {
    const auto result = shake_hands();
    REQUIRE(result.has_value());
    REQUIRE(*result == 0);
    return true;
}

std::uint64_t Client::expect(const Ask& ask) {
    const std::uint64_t cookie = ++last_cookie_;
    pending_[cookie].ask = ask;
    return cookie;
}

std::uint64_t Client::send(const Ask& ask) {
    const std::uint64_t cookie = expect(ask);
    send_bytes(encoded(ask, cookie, handshake_.extended));
    return cookie;
}

Answer Client::complete(std::map<std::uint64_t, Pending>::iterator at) {
    Answer answer = std::move(at->second.answer);
    answer.cookie = at->first;
    pending_.erase(at);
    return answer;
}

std::optional<Answer> Client::next() {
    for (;;) {
        begin_ = used_;
        const auto magic = take(4);
        if (!magic) return std::nullopt;
        ended_within_ = true;  // until the whole reply has been received
        if (load_be<std::uint32_t>(magic->data()) == protocol::simple_reply_magic) {
            const auto rest = take(12);
            if (!rest) return std::nullopt;
            const auto error = static_cast<Error>(load_be<std::uint32_t>(rest->data()));
            const auto at = pending_.find(load_be<std::uint64_t>(rest->data() + 4));
            REQUIRE(at != pending_.end());
            Pending& pending = at->second;
            const bool is_read = pending.ask.type == CommandType::read;
            REQUIRE_FALSE((is_read && handshake_.structured));
            REQUIRE_FALSE(handshake_.extended);
            REQUIRE(pending.answer.chunks.empty());
            pending.answer.error = error;
            if (is_read && error == Error::none) {
                auto data = take(pending.ask.length);
                if (!data) return std::nullopt;
                pending.answer.data = std::move(*data);
            }
            ended_within_ = false;
            return complete(at);
        }
        REQUIRE(load_be<std::uint32_t>(magic->data()) == (handshake_.extended
                                                              ? protocol::extended_reply_magic
                                                              : protocol::structured_reply_magic));
        REQUIRE(handshake_.structured);
        const auto header = chunk_header();
        if (!header) return std::nullopt;
        if (!waits_ && received_.size() - used_ < header->length) return std::nullopt;
        auto answer = chunk(*header);
        ended_within_ = ended_ && used_ != received_.size();
        if (answer || (waits_ && ended_)) return answer;
    }
}

void Client::receive_here(std::size_t max) {
    received_.erase(received_.begin(), received_.begin() + static_cast<std::ptrdiff_t>(used_));
    used_ = 0;
    const std::size_t before = received_.size();
    received_.resize(before + max);
    const ssize_t got = ::recv(fd_, received_.data() + before, max, MSG_DONTWAIT);
    received_.resize(before + static_cast<std::size_t>(std::max<ssize_t>(got, 0)));
    if (got == 0 || (got < 0 && errno != EAGAIN)) ended_ = true;
}

std::optional<Answer> Client::next_here() {
    waits_ = false;
    auto answer = next();
    waits_ = true;
    if (!answer) used_ = begin_;
    return answer;
}

std::optional<Client::ChunkHeader> Client::chunk_header() {
    const bool extended = handshake_.extended;
    const auto bytes =
        take((extended ? protocol::extended_chunk_header_size : protocol::chunk_header_size) - 4);
    if (!bytes) return std::nullopt;
    const std::byte* const from = bytes->data();
    ChunkHeader header{
        .done = load_be<std::uint16_t>(from) == protocol::chunk_flag_done,
        .type = static_cast<protocol::ChunkType>(load_be<std::uint16_t>(from + 2)),
        .cookie = load_be<std::uint64_t>(from + 4),
        .length = extended ? load_be<std::uint64_t>(from + 20) : load_be<std::uint32_t>(from + 12)};
    const auto at = pending_.find(header.cookie);
    REQUIRE(at != pending_.end());
    if (extended) REQUIRE(load_be<std::uint64_t>(from + 12) == at->second.ask.offset);
    REQUIRE(header.length <= protocol::max_payload + 8);
    return header;
}

std::optional<Answer> Client::chunk(const ChunkHeader& header) {
    const auto [done, type, cookie, length] = header;
    const auto at = pending_.find(cookie);
    Pending& pending = at->second;
    const auto content = take(length);
    if (!content) return std::nullopt;
    const std::byte* const from = content->data();
    Answer& answer = pending.answer;
    answer.chunks.push_back(type);
    REQUIRE(answer.error == Error::none);
    switch (type) {
        case protocol::ChunkType::none:
            REQUIRE(content->empty());
            REQUIRE(done);
            break;
        case protocol::ChunkType::error:
        case protocol::ChunkType::error_offset: {
            const std::size_t behind = type == protocol::ChunkType::error ? 0 : 8;
            REQUIRE(content->size() > 6 + behind);
            answer.error = static_cast<Error>(load_be<std::uint32_t>(from));
            REQUIRE(answer.error != Error::none);
            const std::size_t text = load_be<std::uint16_t>(from + 4);
            REQUIRE(content->size() == 6 + text + behind);
            answer.text = {static_cast<const char*>(static_cast<const void*>(from + 6)), text};
            if (behind == 0) break;
            REQUIRE(pending.ask.type == CommandType::read);
            answer.failed_at = load_be<std::uint64_t>(from + 6 + text);
            // A chunk with data must not cover the failed offset.
            REQUIRE(*answer.failed_at >= pending.ask.offset + pending.covered);
            REQUIRE(*answer.failed_at < pending.ask.offset + pending.ask.length);
            break;
        }
        case protocol::ChunkType::block_status:
        case protocol::ChunkType::block_status_ext: {
            const bool ext = type == protocol::ChunkType::block_status_ext;
            REQUIRE(handshake_.extended == ext);
            REQUIRE(pending.ask.type == CommandType::block_status);
            const std::size_t head = ext ? 8 : 4;
            const std::size_t each = ext ? 16 : 8;
            REQUIRE(content->size() >= head + each);
            REQUIRE(content->size() % each == head);
            const auto context = load_be<std::uint32_t>(from);
            REQUIRE(context <= (handshake_.device ? 1 : 0));
            std::vector<protocol::Extent>& extents = context == 0 ? answer.extents : answer.devices;
            REQUIRE(extents.empty());
            if (ext) REQUIRE(load_be<std::uint32_t>(from + 4) == content->size() / each);
            for (std::size_t i = head; i != content->size(); i += each) {
                if (ext) REQUIRE(load_be<std::uint32_t>(from + i + 8) == 0);
                extents.push_back(
                    ext ? protocol::Extent{.length = load_be<std::uint64_t>(from + i),
                                           .status = load_be<std::uint32_t>(from + i + 12)}
                        : protocol::Extent{.length = load_be<std::uint32_t>(from + i),
                                           .status = load_be<std::uint32_t>(from + i + 4)});
            }
            break;
        }
        case protocol::ChunkType::offset_data:
        case protocol::ChunkType::offset_hole: {
            const bool hole = type == protocol::ChunkType::offset_hole;
            REQUIRE(pending.ask.type == CommandType::read);
            REQUIRE(content->size() > 8);
            const auto offset = load_be<std::uint64_t>(from);
            const std::size_t covers =
                hole ? load_be<std::uint32_t>(from + 8) : content->size() - 8;
            if (hole) REQUIRE(content->size() == 12);
            REQUIRE(covers != 0);
            // The protocol permits any order; this server sends chunks in the order of their
            // offsets.
            REQUIRE(offset == pending.ask.offset + pending.covered);
            REQUIRE(covers <= pending.ask.length - pending.covered);
            pending.covered += covers;
            answer.data.resize(pending.covered);
            if (!hole) std::copy_n(from + 8, covers, answer.data.end() - std::ptrdiff_t(covers));
            break;
        }
        default:
            FAIL("an unknown type of chunk");
    }
    if (!done) return std::nullopt;
    if (pending.ask.type == CommandType::read && answer.error == Error::none) {
        REQUIRE(pending.covered == pending.ask.length);
    }
    return complete(at);
}

std::optional<Answer> Client::answer_or_end(std::uint64_t cookie) {
    for (;;) {
        if (const auto at = kept_.find(cookie); at != kept_.end()) {
            Answer answer = std::move(at->second);
            kept_.erase(at);
            return answer;
        }
        auto answer = next();
        if (!answer) return std::nullopt;
        const std::uint64_t its = answer->cookie;
        kept_.emplace(its, std::move(*answer));
    }
}

Answer Client::answer(std::uint64_t cookie) {
    auto answer = answer_or_end(cookie);
    REQUIRE_MESSAGE(answer.has_value(), "the server hung up");
    return std::move(*answer);
}

void Client::check_end() {
    CHECK_FALSE(next().has_value());
    CHECK_FALSE(ended_within_);
    CHECK(pending_.empty());
}

}  // namespace gpunbd::server::test
