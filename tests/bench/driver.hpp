// One connection under load. It keeps `depth` requests in flight, sends all free slots as one
// gathered message, and processes all replies of one receive call. Received payload is not copied,
// and sent payload comes from one constant buffer, because the client must be cheaper than any
// measured server. Nothing is allocated between start() and the end of a run.
#pragma once

#include <sys/socket.h>
#include <sys/uio.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "protocol/constants.hpp"
#include "protocol/request.hpp"
#include "tests/bench/connection.hpp"
#include "tests/bench/cpu_time.hpp"
#include "tests/bench/histogram.hpp"
#include "tests/protocol/wire.hpp"

namespace gpunbd::bench {

namespace wire = protocol::wire;

enum class Phase : int { warm_up, measure, stop };

// The load of a connection during a run.
struct Plan {
    bool write = false;
    bool random = true;
    bool once = false;  // prefill: ends after one pass through [begin, end)
    std::uint32_t size = 4096;
    std::uint32_t depth = 1;
    std::uint64_t begin = 0;
    std::uint64_t end = 0;
    std::uint64_t seed = 1;
};

struct Tally {
    std::uint64_t operations = 0;
    std::uint64_t bytes = 0;
    std::uint64_t errors = 0;
    Histogram latency;

    void merge(const Tally& other) {
        operations += other.operations;
        bytes += other.bytes;
        errors += other.errors;
        latency.merge(other.latency);
    }
};

// xorshift64*: fast, and good enough to scatter offsets.
class Random {
 public:
    explicit Random(std::uint64_t seed) : state_(seed * 0x9e3779b97f4a7c15U + 1) {}
    std::uint64_t next() {
        state_ ^= state_ >> 12;
        state_ ^= state_ << 25;
        state_ ^= state_ >> 27;
        return state_ * 0x2545f4914f6cdd1dU;
    }
    // Uniform in [0, bound), for a bound below 2^32.
    std::uint64_t below(std::uint64_t bound) { return ((next() >> 32) * bound) >> 32; }

 private:
    std::uint64_t state_;
};

class Driver {
 public:
    // `payload` is shared, constant, and as long as the longest write.
    Driver(Socket socket, bool structured, const std::byte* payload)
        : socket_(std::move(socket)), structured_(structured), payload_(payload) {}

    int fd() const { return socket_.fd(); }
    Socket& socket() { return socket_; }
    bool sending() const { return iov_next_ < iov_count_; }
    const Plan& plan() const { return plan_; }
    const Tally& tally() const { return tally_; }
    const std::string& first_error() const { return first_error_; }
    // Increases with every receive. The watchdog of a run polls it.
    std::uint64_t beats() const { return beats_.load(std::memory_order_relaxed); }

    void start(const Plan& plan) {
        plan_ = plan;
        random_ = Random(plan.seed);
        blocks_ = (plan.end - plan.begin) / plan.size;
        next_ = plan.begin;
        exhausted_ = false;
        max_batch_ = std::min(plan.depth, max_requests_per_send);
        slots_.assign(plan.depth, Slot{});
        free_.resize(plan.depth);
        for (std::uint32_t i = 0; i < plan.depth; ++i) free_[i] = plan.depth - 1 - i;
        headers_.resize(std::size_t{max_batch_} * protocol::request_size);
        iov_.resize(std::size_t{max_batch_} * 2);
        tally_ = Tally{};
    }

    // Sends until no slot is free or the socket is full. Returns false if nothing is in flight any
    // more.
    bool pump(Phase phase) {
        while (true) {
            if (sending() && !flush()) return true;
            if (phase == Phase::stop || !queue()) return in_flight_ > 0;
        }
    }

    // Receives once (flags: MSG_DONTWAIT or 0), including data that TLS has buffered, and processes
    // every reply.
    void receive(int flags, const std::atomic<Phase>& phase) {
        receive_once(flags, phase);
        while (socket_.pending()) receive_once(MSG_DONTWAIT, phase);
    }

 private:
    struct Slot {
        std::uint64_t cookie = 0;  // 0: free
        std::uint64_t sent_at = 0;
        std::uint32_t length = 0;
        std::uint64_t covered = 0;  // bytes of the read that chunks have covered
        bool failed = false;
    };

    static constexpr std::uint32_t max_requests_per_send = 512;  // two iovecs each: IOV_MAX
    static constexpr std::size_t write_bytes_per_send =
        1 << 18;  // later requests get a later send time
    static constexpr std::size_t receive_bytes = 256 * 1024;
    static constexpr std::uint32_t max_short_chunk = 6 + 8 + protocol::max_string;

    void receive_once(int flags, const std::atomic<Phase>& phase) {
        const ssize_t got =
            socket_.receive(buffer_.data() + filled_, buffer_.size() - filled_, flags);
        if (got < 0 && (errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR)) return;
        if (got < 0) fail_errno("recv");
        if (got == 0) fail("the server closed the connection");
        filled_ += static_cast<std::size_t>(got);
        parse(now_ns(), phase.load(std::memory_order_relaxed) == Phase::measure);
        beats_.store(beats_.load(std::memory_order_relaxed) + 1, std::memory_order_relaxed);
    }

    bool next_block(std::uint64_t& offset, std::uint32_t& length) {
        length = plan_.size;
        if (plan_.random) {
            offset = plan_.begin + random_.below(blocks_) * plan_.size;
            return true;
        }
        if (exhausted_) return false;
        offset = next_;
        length = static_cast<std::uint32_t>(std::min(std::uint64_t{plan_.size}, plan_.end - next_));
        next_ += length;
        if (next_ + (plan_.once ? 1 : plan_.size) > plan_.end) {
            next_ = plan_.begin;
            exhausted_ = plan_.once;
        }
        return true;
    }

    // Builds one message from the free slots.
    bool queue() {
        if (free_.empty() || exhausted_) return false;
        const auto now = now_ns();
        const auto type = static_cast<std::uint16_t>(plan_.write ? protocol::CommandType::write
                                                                 : protocol::CommandType::read);
        std::uint32_t count = 0;
        std::size_t bytes = 0;
        std::uint64_t offset = 0;
        std::uint32_t length = 0;
        while (!free_.empty() && count < max_batch_ && bytes < write_bytes_per_send &&
               next_block(offset, length)) {
            const auto index = free_.back();
            free_.pop_back();
            auto& slot = slots_[index];
            slot = {
                .cookie = (++generation_ << 32) | (index + 1), .sent_at = now, .length = length};
            auto* header = headers_.data() + std::size_t{count} * protocol::request_size;
            protocol::encode_request(
                {.type = type, .cookie = slot.cookie, .offset = offset, .length = length},
                std::span<std::byte, protocol::request_size>(header, protocol::request_size));
            if (plan_.write) {
                iov_[2 * count] = {header, protocol::request_size};
                iov_[2 * count + 1] = {const_cast<std::byte*>(payload_), length};
                bytes += length;
            }
            ++count;
        }
        if (count == 0) return false;
        if (!plan_.write) iov_[0] = {headers_.data(), count * protocol::request_size};
        iov_next_ = 0;
        iov_count_ = plan_.write ? 2 * count : 1;
        in_flight_ += count;
        return true;
    }

    // Returns true once the whole message has been sent.
    bool flush() {
        const ssize_t sent =
            socket_.send(iov_.data() + iov_next_, iov_count_ - iov_next_, MSG_DONTWAIT);
        if (sent < 0 && (errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR)) return false;
        if (sent < 0) fail_errno("send");
        auto left = static_cast<std::size_t>(sent);
        while (sending() && left >= iov_[iov_next_].iov_len) left -= iov_[iov_next_++].iov_len;
        if (!sending()) return true;
        auto& rest = iov_[iov_next_];
        rest = {static_cast<std::byte*>(rest.iov_base) + left, rest.iov_len - left};
        return false;
    }

    void parse(std::uint64_t now, bool measured) {
        const std::byte* at = buffer_.data();
        const std::byte* const end = at + filled_;
        while (true) {
            const auto left = static_cast<std::size_t>(end - at);
            if (skip_ > 0) {
                const auto taken = std::min(skip_, std::uint64_t{left});
                at += taken;
                skip_ -= taken;
                if (skip_ > 0) break;
                if (ends_after_skip_) finish(now, measured);
                continue;
            }
            const auto used = parse_reply(at, left, now, measured);
            if (used == 0) break;
            at += used;
        }
        filled_ = static_cast<std::size_t>(end - at);
        if (filled_ > 0) std::memmove(buffer_.data(), at, filled_);
    }

    // Returns the length of the reply header at the front, or 0 if it is incomplete.
    std::size_t parse_reply(const std::byte* at, std::size_t left, std::uint64_t now,
                            bool measured) {
        if (left < protocol::simple_reply_size) return 0;
        const std::size_t size = wire::reply_head_size(at);
        if (size == 0) fail("wrong magic in a reply");
        if (left < size) return 0;
        const auto head = wire::parse_reply_head(at);
        find(head.cookie);
        if (!head.simple()) {
            if (!structured_ || head.headers != protocol::Headers::structured)
                fail("a chunk of a kind that was not negotiated");
            const auto used = parse_chunk(head, at + size, left - size, now, measured);
            return used ? size + *used : 0;
        }
        auto& slot = slots_[current_];
        if (head.error != protocol::Error::none) note_error(slot, head.error, {});
        if (head.error == protocol::Error::none && !plan_.write) {
            if (structured_)
                fail("a simple reply to a READ, although structured replies were negotiated");
            slot.covered = slot.length;
            skip_ = slot.length;
            ends_after_skip_ = true;
        } else {
            finish(now, measured);
        }
        return size;
    }

    // Returns the used part of the payload, or nothing if it is incomplete. Data are skipped later.
    std::optional<std::size_t> parse_chunk(const wire::ReplyHead& head, const std::byte* at,
                                           std::size_t left, std::uint64_t now, bool measured) {
        auto& slot = slots_[current_];
        if (head.type == protocol::ChunkType::offset_data) {
            if (head.length <= wire::data_offset_size || plan_.write) fail("an invalid data chunk");
            slot.covered += head.length - wire::data_offset_size;
            skip_ = head.length;
            ends_after_skip_ = head.done();
            return 0;
        }
        if (head.length > max_short_chunk) fail("a chunk with an invalid length");
        if (left < head.length) return std::nullopt;
        const std::span payload(at, static_cast<std::size_t>(head.length));
        if (head.type == protocol::ChunkType::offset_hole) {
            const auto hole = wire::parse_content(head.type, payload);
            if (!hole || plan_.write) fail("an invalid hole chunk");
            slot.covered += hole->length;
        } else if (head.is_error()) {
            const auto error = wire::parse_error(head.type, payload);
            if (!error) fail("an invalid error chunk");
            note_error(slot, error->error, error->text);
        } else if (head.type != protocol::ChunkType::none || head.length != 0) {
            fail("a chunk of unknown type");
        }
        if (head.done()) finish(now, measured);
        return payload.size();
    }

    void find(std::uint64_t cookie) {
        const auto index = static_cast<std::uint32_t>(cookie) - 1;
        if (index >= slots_.size() || slots_[index].cookie != cookie)
            fail("a reply to a request that is not in flight");
        current_ = index;
    }

    void note_error(Slot& slot, protocol::Error error, std::string_view text) {
        slot.failed = true;
        if (first_error_.empty())
            first_error_ = std::string(plan_.write ? "write" : "read") + " failed with error " +
                           std::to_string(static_cast<std::uint32_t>(error)) +
                           (text.empty() ? "" : ": " + std::string(text));
    }

    void finish(std::uint64_t now, bool measured) {
        auto& slot = slots_[current_];
        ends_after_skip_ = false;
        if (slot.failed) {
            ++tally_.errors;  // in every phase, so that no error is missed
        } else {
            if (!plan_.write && slot.covered != slot.length)
                fail("the chunks of a read do not cover its range");
            if (measured) {
                ++tally_.operations;
                tally_.bytes += slot.length;
                tally_.latency.record(now - slot.sent_at);
            }
        }
        slot.cookie = 0;
        free_.push_back(current_);
        --in_flight_;
    }

    Socket socket_;
    bool structured_;
    const std::byte* payload_;

    Plan plan_;
    Random random_{1};
    std::uint64_t blocks_ = 0;
    std::uint64_t next_ = 0;
    bool exhausted_ = false;

    std::vector<Slot> slots_;
    std::vector<std::uint32_t> free_;  // its capacity is constant
    std::uint64_t generation_ = 0;
    std::uint32_t in_flight_ = 0;

    std::uint32_t max_batch_ = 1;
    std::vector<std::byte> headers_;
    std::vector<iovec> iov_;
    std::size_t iov_next_ = 0;
    std::size_t iov_count_ = 0;

    std::vector<std::byte> buffer_ = std::vector<std::byte>(receive_bytes);
    std::size_t filled_ = 0;
    std::uint64_t skip_ = 0;  // remaining payload of the current slot
    bool ends_after_skip_ = false;
    std::uint32_t current_ = 0;

    Tally tally_;
    std::string first_error_;
    std::atomic<std::uint64_t> beats_{0};
};

}  // namespace gpunbd::bench
