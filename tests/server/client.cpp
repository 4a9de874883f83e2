#include "tests/server/client.hpp"

#include <poll.h>
#include <sys/socket.h>

#include <cerrno>

#include "protocol/bytes.hpp"
#include "protocol/meta_context.hpp"
#include "protocol/request.hpp"
#include "tests/protocol/wire.hpp"
#include "tests/test.hpp"

namespace gpunbd::server::test {

namespace {

namespace wire = protocol::wire;
using protocol::test::joined;

constexpr std::size_t piece = 256 * 1024;  // bytes received at once

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
    protocol::append_be(payload, ask.length);
    for (const protocol::MetaContext context : protocol::all_contexts) {
        const std::uint32_t id = protocol::id_of(context);
        if ((ask.contexts >> id & 1) != 0) protocol::append_be(payload, id);
    }
    return payload;
}

Bytes encoded(const Ask& ask, std::uint64_t cookie, bool extended) {
    Bytes header = encoded_header(ask, cookie, extended);
    const bool asked_for = extended && ask.type != CommandType::disc &&
                           (ask.flags & protocol::command_flag::payload_len) != 0;
    if (ask.type != CommandType::write && !asked_for) return header;
    return joined(
        {header, ask.type == CommandType::block_status ? status_payload_of(ask) : payload_of(ask)});
}

Bytes handshake_bytes(const Handshake& handshake) {
    Bytes replies;
    if (handshake.structured) {
        std::vector<std::string_view> contexts{"base:allocation"};
        if (handshake.device) contexts.emplace_back("gpunbd:device");
        replies =
            joined({wire::option(handshake.extended ? wire::opt::extended : wire::opt::structured),
                    wire::option(wire::opt::set_meta, wire::meta_data(handshake.name, contexts))});
    }
    return joined({wire::client_flags(), replies,
                   wire::option(wire::opt::go, wire::info_data(handshake.name))});
}

void Client::reset() {
    const linger at_once{.l_onoff = 1, .l_linger = 0};
    REQUIRE(::setsockopt(fd_.get(), SOL_SOCKET, SO_LINGER, &at_once, sizeof at_once) == 0);
    close();
}

void Client::shut_down_sending() const { ::shutdown(fd_.get(), SHUT_WR); }

bool Client::readable() const {
    pollfd poll{.fd = fd_.get(), .events = POLLIN, .revents = 0};
    return used_ != received_.size() || ::poll(&poll, 1, 0) == 1;
}

bool Client::wait_for(short events) {
    for (;;) {
        std::vector<pollfd> polls{{.fd = fd_.get(), .events = events, .revents = 0}};
        for (const Client& other : together_) {
            const bool waits = &other != this && !other.ended_;
            polls.push_back({.fd = waits ? other.fd_.get() : -1, .events = POLLIN, .revents = 0});
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

// One recv() of at most `max` bytes, which does not block. Returns its result.
ssize_t Client::receive_some(std::size_t max) {
    received_.erase(received_.begin(), received_.begin() + static_cast<std::ptrdiff_t>(used_));
    used_ = 0;
    const std::size_t before = received_.size();
    received_.resize(before + max);
    const ssize_t got = ::recv(fd_.get(), received_.data() + before, max, MSG_DONTWAIT);
    received_.resize(before + static_cast<std::size_t>(std::max<ssize_t>(got, 0)));
    return got;
}

// Returns false if the connection has ended.
bool Client::receive() {
    for (;;) {
        const ssize_t got = receive_some(piece);
        if (got >= 0 || (errno != EAGAIN && errno != EINTR)) return got > 0;
        static_cast<void>(wait_for(POLLIN));
    }
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
        const ssize_t sent =
            ::send(fd_.get(), bytes.data(), bytes.size(), MSG_DONTWAIT | MSG_NOSIGNAL);
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
    const ssize_t sent = ::send(fd_.get(), bytes.data(), bytes.size(), MSG_DONTWAIT | MSG_NOSIGNAL);
    return sent > 0 ? static_cast<std::size_t>(sent) : 0;
}

std::optional<std::uint32_t> Client::shake_hands(bool sent) {
    const auto greeting = take(wire::greeting_size);
    if (!greeting) return std::nullopt;
    REQUIRE(wire::parse_greeting(std::span(*greeting).first<wire::greeting_size>()).has_value());
    if (!sent) send_bytes(handshake_bytes(handshake_));
    for (;;) {
        const auto bytes = take(wire::option_reply_size);
        if (!bytes) return std::nullopt;
        const auto header =
            wire::parse_option_reply(std::span(*bytes).first<wire::option_reply_size>());
        REQUIRE(header.has_value());
        if (!take(header->length)) return std::nullopt;
        if (header->option != wire::opt::go || header->type == protocol::OptionReply::info) {
            continue;
        }
        return header->type == protocol::OptionReply::ack
                   ? 0
                   : static_cast<std::uint32_t>(header->type);
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

Bytes Client::expect_all(const std::vector<Ask>& asks) {
    Bytes bytes;
    for (const Ask& ask : asks) {
        const Bytes each = encoded(ask, expect(ask), handshake_.extended);
        bytes.insert(bytes.end(), each.begin(), each.end());
    }
    return bytes;
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
        const auto magic = take(sizeof(std::uint32_t));
        if (!magic) return std::nullopt;
        ended_within_ = true;  // until the whole reply has been received
        const std::size_t size = wire::reply_head_size(magic->data());
        REQUIRE(size != 0);
        used_ -= magic->size();
        const auto bytes = take(size);
        if (!bytes) return std::nullopt;
        const wire::ReplyHead head = wire::parse_reply_head(bytes->data());
        const auto at = pending_.find(head.cookie);
        REQUIRE(at != pending_.end());
        Pending& pending = at->second;
        if (head.simple()) {
            const bool is_read = pending.ask.type == CommandType::read;
            REQUIRE_FALSE((is_read && handshake_.structured));
            REQUIRE_FALSE(handshake_.extended);
            REQUIRE(pending.answer.chunks.empty());
            pending.answer.error = head.error;
            if (is_read && head.error == Error::none) {
                auto data = take(pending.ask.length);
                if (!data) return std::nullopt;
                pending.answer.data = std::move(*data);
            }
            ended_within_ = false;
            return complete(at);
        }
        REQUIRE(handshake_.structured);
        REQUIRE((head.headers == protocol::Headers::extended) == handshake_.extended);
        if (handshake_.extended) REQUIRE(head.offset == pending.ask.offset);
        REQUIRE(head.length <= protocol::max_payload + wire::data_offset_size);
        if (!waits_ && received_.size() - used_ < head.length) return std::nullopt;
        auto answer = chunk(head);
        ended_within_ = ended_ && used_ != received_.size();
        if (answer || (waits_ && ended_)) return answer;
    }
}

void Client::receive_here(std::size_t max) {
    const ssize_t got = receive_some(max);
    if (got == 0 || (got < 0 && errno != EAGAIN)) ended_ = true;
}

std::optional<Answer> Client::next_here() {
    waits_ = false;
    auto answer = next();
    waits_ = true;
    if (!answer) used_ = begin_;
    return answer;
}

std::optional<Answer> Client::chunk(const protocol::wire::ReplyHead& head) {
    const auto at = pending_.find(head.cookie);
    Pending& pending = at->second;
    const auto payload = take(head.length);
    if (!payload) return std::nullopt;
    Answer& answer = pending.answer;
    answer.chunks.push_back(head.type);
    REQUIRE(answer.error == Error::none);
    switch (head.type) {
        case protocol::ChunkType::none:
            REQUIRE(payload->empty());
            REQUIRE(head.done());
            break;
        case protocol::ChunkType::error:
        case protocol::ChunkType::error_offset: {
            const auto error = wire::parse_error(head.type, *payload);
            REQUIRE(error.has_value());
            REQUIRE_FALSE(error->text.empty());
            answer.error = error->error;
            answer.text = error->text;
            answer.failed_at = error->offset;
            if (!error->offset) break;
            REQUIRE(pending.ask.type == CommandType::read);
            // A chunk with data must not cover the failed offset.
            REQUIRE(*error->offset >= pending.ask.offset + pending.covered);
            REQUIRE(*error->offset < pending.ask.offset + pending.ask.length);
            break;
        }
        case protocol::ChunkType::block_status:
        case protocol::ChunkType::block_status_ext: {
            REQUIRE(handshake_.extended == (head.type == protocol::ChunkType::block_status_ext));
            REQUIRE(pending.ask.type == CommandType::block_status);
            auto status = wire::parse_status(head.type, *payload);
            REQUIRE(status.has_value());
            REQUIRE(status->context <= (handshake_.device ? 1 : 0));
            std::vector<protocol::Extent>& extents =
                status->context == 0 ? answer.extents : answer.devices;
            REQUIRE(extents.empty());
            extents = std::move(status->extents);
            break;
        }
        case protocol::ChunkType::offset_data:
        case protocol::ChunkType::offset_hole: {
            REQUIRE(pending.ask.type == CommandType::read);
            const auto content = wire::parse_content(head.type, *payload);
            REQUIRE(content.has_value());
            // The protocol permits any order; this server sends chunks in the order of their
            // offsets.
            REQUIRE(content->offset == pending.ask.offset + pending.covered);
            REQUIRE(content->length <= pending.ask.length - pending.covered);
            pending.covered += content->length;
            if (head.type == protocol::ChunkType::offset_data) {
                answer.data.insert(answer.data.end(), payload->begin() + wire::data_offset_size,
                                   payload->end());
            }
            answer.data.resize(pending.covered);
            break;
        }
        default:
            FAIL("an unknown type of chunk");
    }
    if (!head.done()) return std::nullopt;
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

void Client::receive_all(std::optional<Error> error) {
    while (unanswered() != 0) {
        const auto answer = next();
        REQUIRE(answer.has_value());
        if (error) REQUIRE(answer->error == *error);
    }
}

void Client::disconnect() {
    send({CommandType::disc});
    CHECK_FALSE(next().has_value());
}

void Client::check_end() {
    CHECK_FALSE(next().has_value());
    CHECK_FALSE(ended_within_);
    CHECK(pending_.empty());
}

}  // namespace gpunbd::server::test
