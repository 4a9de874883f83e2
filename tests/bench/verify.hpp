// Checks contents instead of speed: writes of every size, concurrent and in any order, are read
// back on another connection and compared with a shadow copy in this process.
#pragma once

#include <fmt/format.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <exception>
#include <functional>
#include <future>
#include <memory>
#include <mutex>
#include <random>
#include <semaphore>
#include <span>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "protocol/request.hpp"
#include "tests/bench/connection.hpp"
#include "tests/bench/run_load.hpp"
#include "tests/protocol/wire.hpp"

namespace gpunbd::bench {

struct VerifyTotals {
    std::uint64_t written = 0;  // bytes
    std::uint64_t compared = 0;
    std::uint64_t mismatches = 0;  // requests
    std::uint64_t errors = 0;
    std::string first_problem;

    void problem(const std::string& what) {
        if (first_problem.empty()) first_problem = what;
    }
};

// One connection with a sending and a receiving thread, so that a server that does not read while
// it sends cannot block both.
class Verifier {
 public:
    struct Job {
        protocol::CommandType type = protocol::CommandType::read;
        std::uint64_t offset = 0;
        std::uint32_t length = 0;
    };

    Verifier(Socket socket, bool structured, std::byte* shadow, std::uint64_t shadow_begin)
        : socket_(std::move(socket)),
          structured_(structured),
          shadow_(shadow),
          shadow_begin_(shadow_begin) {}

    int fd() const { return socket_.fd(); }
    Socket& socket() { return socket_; }
    const VerifyTotals& totals() const { return totals_; }

    // Executes all jobs, `depth` at a time. Throws if the connection fails.
    void run(const std::vector<Job>& jobs, std::size_t depth) {
        std::uint32_t longest = 0;
        for (const auto& job : jobs) longest = std::max(longest, job.length);
        slots_.assign(depth, Slot{});
        free_.clear();
        for (std::size_t i = 0; i < depth; ++i) {
            free_.push_back(i);
            slots_[i].data.resize(longest);
        }
        available_ =
            std::make_unique<std::counting_semaphore<>>(static_cast<std::ptrdiff_t>(depth));
        stopped_ = false;
        std::exception_ptr send_failure;
        std::thread sender([&] {
            try {
                send_jobs(jobs);
            } catch (...) {
                // If the receiver has failed, the error of the sender is only a consequence.
                if (!stopped_) send_failure = std::current_exception();
                shutdown(fd(), SHUT_RDWR);
            }
        });
        try {
            for (std::size_t answered = 0; answered < jobs.size();)
                if (receive_reply()) ++answered;
        } catch (...) {
            stopped_ = true;
            shutdown(fd(), SHUT_RDWR);
            available_->release();
            sender.join();
            if (send_failure) std::rethrow_exception(send_failure);
            throw;
        }
        sender.join();
        if (send_failure) std::rethrow_exception(send_failure);
    }

 private:
    struct Slot {
        std::uint64_t cookie = 0;  // 0: free
        Job job;
        std::uint64_t covered = 0;
        bool failed = false;
        std::vector<std::byte> data;
    };

    std::byte* shadow_at(std::uint64_t offset) const { return shadow_ + (offset - shadow_begin_); }

    void send_jobs(const std::vector<Job>& jobs) {
        for (const auto& job : jobs) {
            available_->acquire();
            if (stopped_) return;
            std::array<std::byte, protocol::request_size> header;
            {
                const std::lock_guard lock(mutex_);
                const auto index = free_.back();
                free_.pop_back();
                auto& slot = slots_[index];
                slot.cookie = (++generation_ << 16) | (index + 1);
                slot.job = job;
                slot.covered = 0;
                slot.failed = false;
                protocol::encode_request({.type = static_cast<std::uint16_t>(job.type),
                                          .cookie = slot.cookie,
                                          .offset = job.offset,
                                          .length = job.length},
                                         header);
            }
            send_all(socket_, header);
            if (job.type == protocol::CommandType::write)
                send_all(socket_, {shadow_at(job.offset), job.length});
        }
    }

    // Returns true when a request has been answered completely.
    bool receive_reply() {
        std::array<std::byte, protocol::extended_chunk_header_size> bytes;
        receive_all(socket_, std::span(bytes).first(protocol::simple_reply_size));
        const std::size_t size = wire::reply_head_size(bytes.data());
        if (size == 0) fail("wrong magic in a reply");
        receive_all(socket_, std::span(bytes).first(size).subspan(protocol::simple_reply_size));
        const auto head = wire::parse_reply_head(bytes.data());
        auto& slot = find(head.cookie);
        const bool reading = slot.job.type == protocol::CommandType::read;
        if (head.simple()) {
            if (head.error != protocol::Error::none) {
                note_error(slot, head.error);
            } else if (reading) {
                if (structured_)
                    fail("a simple reply to a READ, although structured replies were negotiated");
                receive_all(socket_, std::span(slot.data).first(slot.job.length));
                slot.covered = slot.job.length;
            }
            finish(slot);
            return true;
        }
        if (!structured_ || head.headers != protocol::Headers::structured)
            fail("a chunk of a kind that was not negotiated");
        if (head.type == protocol::ChunkType::offset_data && reading) {
            receive_data(slot, head);
        } else {
            if (head.length > 6 + 8 + protocol::max_string) fail("a chunk of absurd length");
            std::vector<std::byte> payload(head.length);
            receive_all(socket_, payload);
            if (head.type == protocol::ChunkType::offset_hole && reading) {
                const auto hole = wire::parse_content(head.type, payload);
                if (!hole) fail("an invalid hole chunk");
                std::memset(place(slot, *hole), 0, hole->length);
            } else if (head.is_error()) {
                const auto error = wire::parse_error(head.type, payload);
                if (!error) fail("an invalid error chunk");
                note_error(slot, error->error);
            } else if (head.type != protocol::ChunkType::none || head.length != 0) {
                fail("an unexpected chunk");
            }
        }
        if (head.done()) finish(slot);
        return head.done();
    }

    // The data are received to their place in the slot.
    void receive_data(Slot& slot, const wire::ReplyHead& head) {
        if (head.length <= wire::data_offset_size) fail("an empty data chunk");
        std::array<std::byte, wire::data_offset_size> offset;
        receive_all(socket_, offset);
        const std::uint64_t length = head.length - wire::data_offset_size;
        std::byte* const to =
            place(slot, {protocol::load_be<std::uint64_t>(offset.data()), length});
        receive_all(socket_, {to, static_cast<std::size_t>(length)});
    }

    std::byte* place(Slot& slot, const wire::Content& content) {
        const std::uint64_t within = content.offset - slot.job.offset;
        if (content.offset < slot.job.offset || within > slot.job.length ||
            content.length > slot.job.length - within)
            fail("a chunk outside of its read");
        slot.covered += content.length;
        return slot.data.data() + within;
    }

    Slot& find(std::uint64_t cookie) {
        const std::lock_guard lock(mutex_);
        const auto index = static_cast<std::size_t>((cookie & 0xffff) - 1);
        if (index >= slots_.size() || slots_[index].cookie != cookie)
            fail("a reply to a request that is not in flight");
        return slots_[index];
    }

    std::string at(const Job& job) const {
        const auto* const what = job.type == protocol::CommandType::read    ? "read"
                                 : job.type == protocol::CommandType::write ? "write"
                                                                            : "flush";
        return fmt::format("{} of {} bytes at {}", what, job.length, job.offset);
    }

    void note_error(Slot& slot, protocol::Error error) {
        slot.failed = true;
        totals_.problem(fmt::format("{} failed with error {}", at(slot.job),
                                    static_cast<std::uint32_t>(error)));
    }

    void finish(Slot& slot) {
        const auto& job = slot.job;
        if (slot.failed) {
            ++totals_.errors;
        } else if (job.type == protocol::CommandType::write) {
            totals_.written += job.length;
        } else if (job.type == protocol::CommandType::read) {
            if (slot.covered != job.length) fail("the chunks of a read do not cover its range");
            totals_.compared += job.length;
            const auto* want = shadow_at(job.offset);
            if (std::memcmp(slot.data.data(), want, job.length) != 0) {
                ++totals_.mismatches;
                const auto first = static_cast<std::size_t>(
                    std::mismatch(want, want + job.length, slot.data.data()).first - want);
                totals_.problem(fmt::format(
                    "{}: byte {} is {}, written was {}", at(job), job.offset + first,
                    std::to_integer<int>(slot.data[first]), std::to_integer<int>(want[first])));
            }
        }
        const std::lock_guard lock(mutex_);
        slot.cookie = 0;
        free_.push_back(static_cast<std::size_t>(&slot - slots_.data()));
        available_->release();
    }

    Socket socket_;
    bool structured_;
    std::byte* shadow_;
    std::uint64_t shadow_begin_;
    VerifyTotals totals_;

    std::mutex mutex_;  // protects the cookies of the slots and the free list
    std::vector<Slot> slots_;
    std::vector<std::size_t> free_;
    std::uint64_t generation_ = 0;
    std::unique_ptr<std::counting_semaphore<>> available_;
    std::atomic<bool> stopped_{false};
};

namespace detail {

// Each byte depends on its offset, which detects exchanged blocks, and on the version of the
// contents, which detects lost writes.
inline void fill_pattern(std::byte* to, std::uint64_t offset, std::uint64_t length,
                         std::uint64_t version) {
    const auto word_at = [version](std::uint64_t index) {
        auto word = (index + 1) * 0x9e3779b97f4a7c15U ^ version * 0xd1342543de82ef95U;
        word = (word ^ (word >> 29)) * 0xbf58476d1ce4e5b9U;
        return word ^ (word >> 32);
    };
    std::uint64_t i = 0;
    while (i < length) {
        const auto position = offset + i;
        std::byte word[8];
        protocol::store_be(word, word_at(position / 8));
        const auto skip = position % 8;
        const auto count = std::min(8 - skip, length - i);
        std::memcpy(to + i, word + skip, count);
        i += count;
    }
}

// Does this work for each number below `count`, all at the same time. Throws what one of them
// throws.
inline void on_each(std::size_t count, const std::function<void(std::size_t)>& work) {
    std::vector<std::future<void>> all;
    for (std::size_t i = 0; i < count; ++i) all.push_back(std::async(std::launch::async, work, i));
    for (auto& each : all) each.get();
}

}  // namespace detail

// Uses all sizes in turn, or only `only_size`. Repeats until `seconds` have passed.
inline int run_verify(const LoadOptions& options, std::uint64_t only_size, double seconds,
                      const ExportInfo& info, std::vector<Socket> sockets, std::string_view tool,
                      std::string_view transport) {
    using Job = Verifier::Job;
    using Generator = std::mt19937_64;
    constexpr std::uint64_t max_shadow = std::uint64_t{256} << 20;
    constexpr std::uint64_t max_jobs = 2048;                          // per connection and pass
    constexpr std::uint64_t max_in_flight = std::uint64_t{64} << 20;  // bytes per connection
    check_writable(info);
    if (options.offset % info.min_block != 0 || options.span % info.min_block != 0)
        fail("--offset and --span must be multiples of the export's block");
    const auto room = check_part(options, info);
    if (options.depth == 0 || options.depth > 0xfffe) fail("--qd must be 1 to 65534");
    const auto span = options.span == 0 ? std::min(room, max_shadow) : options.span;
    const auto count = sockets.size();
    const auto part = span / count / info.min_block * info.min_block;
    if (part == 0) fail("--span is too small for this number of connections");

    std::vector<std::uint64_t> sizes = {1,     13,     512,         4095,    4096,    4097,
                                        65536, 131075, 1024 * 1024, 4 << 20, 32 << 20};
    if (only_size != 0) sizes = {only_size};
    std::erase_if(sizes, [&](std::uint64_t size) {
        return size > part || size > info.max_payload || size % info.min_block != 0;
    });
    if (sizes.empty()) fail("no size fits into the span and the export's limits");

    std::vector<std::byte> shadow(span);
    std::vector<std::unique_ptr<Verifier>> verifiers;
    for (auto& socket : sockets) {
        set_timeout(socket.fd(), options.window.stall);
        verifiers.push_back(std::make_unique<Verifier>(std::move(socket), options.structured,
                                                       shadow.data(), options.offset));
    }
    const bool flushes = (info.flags & protocol::transmission_flag::send_flush) != 0;
    const auto begin_of = [&](std::size_t i) { return options.offset + i * part; };
    const auto depth_for = [&](std::uint64_t size) {
        return static_cast<std::size_t>(
            std::clamp(max_in_flight / size, std::uint64_t{1}, options.depth));
    };
    // All blocks of this size in the part, minus the shift that makes offsets odd.
    const auto blocks_of = [&](std::size_t i, std::uint64_t size, std::uint64_t shift,
                               Generator& random) {
        std::vector<Job> jobs;
        const auto blocks = (part - shift) / size;
        const auto step = std::max(std::uint64_t{1}, blocks / max_jobs);
        for (std::uint64_t block = 0; block < blocks; block += step)
            jobs.push_back({.offset = begin_of(i) + shift + block * size,
                            .length = static_cast<std::uint32_t>(size)});
        std::ranges::shuffle(jobs, random);
        return jobs;
    };
    // The whole part, in blocks of `chunk`.
    const auto chunk = std::min({std::uint64_t{1} << 20, std::uint64_t{info.max_payload}, part}) /
                       info.min_block * info.min_block;
    const auto whole_part = [&](std::size_t i) {
        std::vector<Job> jobs;
        for (std::uint64_t at = 0; at < part; at += chunk)
            jobs.push_back({.offset = begin_of(i) + at,
                            .length = static_cast<std::uint32_t>(std::min(chunk, part - at))});
        return jobs;
    };
    // Runs the jobs. Every `step`th one is made a write of the contents of this version.
    const auto run_with_writes = [&](std::size_t i, std::vector<Job> jobs, std::size_t step,
                                     std::uint64_t version) {
        for (std::size_t k = 0; k < jobs.size(); k += step) {
            jobs[k].type = protocol::CommandType::write;
            detail::fill_pattern(shadow.data() + (jobs[k].offset - options.offset), jobs[k].offset,
                                 jobs[k].length, version);
        }
        if (!jobs.empty()) verifiers[i]->run(jobs, depth_for(jobs.front().length));
        if (flushes) verifiers[i]->run({{.type = protocol::CommandType::flush}}, 1);
    };

    std::uint64_t rounds = 0;
    std::string failure;
    const auto begin = now_ns();
    try {
        detail::on_each(count, [&](std::size_t i) {
            Generator random(options.seed + i);
            auto jobs = whole_part(i);
            std::ranges::shuffle(jobs, random);
            run_with_writes(i, std::move(jobs), 1, options.seed);
        });
        do {
            for (const auto size : sizes) {
                const auto version = options.seed + (++rounds);
                // Half of the blocks are written while the other half is read.
                detail::on_each(count, [&](std::size_t i) {
                    Generator random(version * 1000 + i);
                    const auto max = std::min({part - size, size, std::uint64_t{4096}});
                    const auto shift = random() % (max + 1) / info.min_block * info.min_block;
                    run_with_writes(i, blocks_of(i, size, shift, random), 2, version);
                });
                detail::on_each(count, [&](std::size_t i) {
                    Generator random(version * 2000 + i);
                    const auto other = (i + 1) % count;
                    verifiers[i]->run(blocks_of(other, size, 0, random), depth_for(size));
                });
            }
            // Data outside of these blocks must not have changed either.
            detail::on_each(count, [&](std::size_t i) {
                verifiers[i]->run(whole_part((i + 1) % count), depth_for(chunk));
            });
        } while (static_cast<double>(now_ns() - begin) / 1e9 < seconds);
    } catch (const std::exception& error) {
        failure = error.what();
    }

    VerifyTotals all;
    for (const auto& verifier : verifiers) {
        const auto& totals = verifier->totals();
        all.written += totals.written;
        all.compared += totals.compared;
        all.mismatches += totals.mismatches;
        all.errors += totals.errors;
        all.problem(totals.first_problem);
        disconnect(verifier->socket());
    }
    all.problem(failure);

    Json json;
    json.text("tool", tool)
        .text("transport", transport)
        .text("op", "verify")
        .number("span", span)
        .number("connections", std::uint64_t{count})
        .number("qd", options.depth)
        .flag("structured", options.structured)
        .raw("sizes", fmt::format("[{}]", fmt::join(sizes, ", ")))
        .number("seconds", static_cast<double>(now_ns() - begin) / 1e9, 3)
        .number("bytes_written", all.written)
        .number("bytes_compared", all.compared)
        .number("mismatches", all.mismatches)
        .number("errors", all.errors);
    if (!all.first_problem.empty()) json.text("failure", all.first_problem);
    std::puts(json.line().c_str());
    if (all.first_problem.empty()) return 0;
    fmt::print(stderr, "{}: {}\n", tool, all.first_problem);
    return 1;
}

}  // namespace gpunbd::bench
