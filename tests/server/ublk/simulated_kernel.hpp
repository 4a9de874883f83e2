// The kernel's side of a ublk queue. It checks that the server keeps to the rules of the interface:
// each tag has one command at a time, and only a request that the server has can be answered, with
// its payload complete.
#pragma once

#include <deque>

#include "server/ublk/request.hpp"
#include "tests/test.hpp"

namespace gpunbd::server::test {

class SimulatedKernel final : public ublk::QueueIo {
 public:
    explicit SimulatedKernel(std::uint16_t depth) : tags_(depth) {}

    struct Request {
        std::uint32_t operation = 0;  // with flags
        std::uint64_t sector = 0;
        std::uint32_t sectors = 0;
        std::vector<std::byte> payload = {};  // of a write; of a read: as long as the answer
    };
    // Sends a request with a tag that the kernel has. Queue::run() takes it.
    void send(std::uint16_t tag, Request request) {
        Tag& its = tags_[tag];
        REQUIRE(its.state == Tag::State::fetched);
        its.state = Tag::State::sent;
        its.request = std::move(request);
        its.result.reset();
        completions_.push_back({.tag = tag});
    }
    // Ends all commands, as STOP_DEV does.
    void abort() {
        for (std::uint16_t tag = 0; tag != tags_.size(); ++tag) {
            aborted_ = true;
            if (tags_[tag].state == Tag::State::fetched) end(tag);
        }
    }
    // The result of the last request with this tag, if it has been answered.
    std::optional<std::int32_t> result(std::uint16_t tag) const { return tags_[tag].result; }
    const std::vector<std::byte>& payload(std::uint16_t tag) const {
        return tags_[tag].request.payload;
    }
    // The queue runs again when there is more for it.
    bool waited_for() const { return waited_for_; }
    std::size_t submits() const { return submits_; }

    std::size_t refused_copies = 0;  // the next copies of payload fail
    std::size_t longest_copy = ~std::size_t{0};

 private:
    struct Tag {
        enum class State { absent, prepared, fetched, sent, taken, answered, ended };
        State state = State::absent;
        Request request = {};
        std::int32_t answer = 0;
        std::optional<std::int32_t> result = {};
    };

    void fetch(std::uint16_t tag) override {
        CHECK(tags_[tag].state == Tag::State::absent);
        tags_[tag].state = Tag::State::prepared;
    }
    void answer(std::uint16_t tag, std::int32_t result) override {
        CHECK(tags_[tag].state == Tag::State::taken);
        tags_[tag].state = Tag::State::answered;
        tags_[tag].answer = result;
    }
    void submit() override {
        ++submits_;
        for (std::uint16_t tag = 0; tag != tags_.size(); ++tag) {
            Tag& its = tags_[tag];
            if (its.state == Tag::State::answered) its.result = its.answer;
            if (its.state != Tag::State::answered && its.state != Tag::State::prepared) continue;
            its.state = Tag::State::fetched;
            if (aborted_) end(tag);
        }
    }
    std::optional<Completion> next() override {
        waited_for_ = false;
        if (completions_.empty()) return std::nullopt;
        const Completion next = completions_.front();
        completions_.pop_front();
        if (next.result == 0) tags_[next.tag].state = Tag::State::taken;
        return next;
    }
    void wait() override { waited_for_ = true; }

    ublk::Descriptor descriptor(std::uint16_t tag) const override {
        const Request& request = tags_[tag].request;
        return {.operation_and_flags = request.operation,
                .sectors = request.sectors,
                .start_sector = request.sector};
    }
    ssize_t receive(std::uint16_t tag, std::span<const iovec> to, std::uint64_t offset) override {
        if (refuses()) return -1;
        const std::vector<std::byte>& payload = tags_[tag].request.payload;
        std::size_t copied = 0;
        for (const iovec& each : to) {
            const std::size_t bytes =
                std::min({each.iov_len, payload.size() - offset, longest_copy - copied});
            std::memcpy(each.iov_base, payload.data() + offset, bytes);
            copied += bytes;
            offset += bytes;
        }
        return static_cast<ssize_t>(copied);
    }
    ssize_t send(std::uint16_t tag, std::span<const std::byte> from,
                 std::uint64_t offset) override {
        CHECK(tags_[tag].state == Tag::State::taken);
        if (refuses()) return 0;
        std::vector<std::byte>& payload = tags_[tag].request.payload;
        const std::size_t bytes = std::min(from.size(), longest_copy);
        REQUIRE(offset + bytes <= payload.size());
        std::memcpy(payload.data() + offset, from.data(), bytes);
        return static_cast<ssize_t>(bytes);
    }
    bool refuses() {
        if (refused_copies == 0) return false;
        --refused_copies;
        return true;
    }
    void end(std::uint16_t tag) {
        tags_[tag].state = Tag::State::ended;
        completions_.push_back({.tag = tag, .result = -ENODEV});
    }

    std::vector<Tag> tags_;
    std::deque<Completion> completions_;
    bool aborted_ = false;
    bool waited_for_ = false;
    std::size_t submits_ = 0;
};

}  // namespace gpunbd::server::test
