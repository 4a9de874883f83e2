#include "storage/origins/origin_nbd.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <thread>
#include <utility>

#include "storage/base/log_line.hpp"
#include "storage/origins/fingerprint.hpp"

namespace gpunbd::storage {

namespace {

constexpr std::uint64_t map_step = std::uint64_t{1} << 31;     // bytes of a block status request
constexpr std::size_t most_extents = std::size_t{1} << 18;     // that are remembered
constexpr std::uint64_t zero_step = std::uint64_t{128} << 20;  // bytes; servers may write zeroes
// Before another connection is tried after one that was not possible.
constexpr std::chrono::seconds growth_pause{10};
constexpr std::chrono::seconds log_pause{10};  // from one line about a lost connection to the next

}  // namespace

// A connection that a call uses.
class OriginNbd::Lease {
 public:
    Lease(OriginNbd& origin, bool leads) : origin_(origin) {
        const Lock lock(origin.mutex_);
        index_ = origin.take(leads);
    }
    ~Lease() {
        {
            const Lock lock(origin_.mutex_);
            origin_.states_[index_].is_busy = false;
        }
        origin_.returned_.notify_all();
    }
    Lease(const Lease&) = delete;
    Lease& operator=(const Lease&) = delete;

    std::size_t index() const { return index_; }

 private:
    OriginNbd& origin_;
    std::size_t index_ = 0;
};

// --- opening -------------------------------------------------------------------------------------

std::variant<std::unique_ptr<OriginNbd>, std::string> OriginNbd::open(const std::string& uri,
                                                                      bool is_writable,
                                                                      Limits limits) {
    std::unique_ptr<OriginNbd> out(new OriginNbd(uri, is_writable, limits));
    if (const std::string why = out->start(); !why.empty()) return out->problem(why);
    return out;
}

std::string OriginNbd::start() {
    auto opened = NbdConnection::open(uri_, limits_.connection, true);
    if (auto* const why = std::get_if<std::string>(&opened)) return std::move(*why);
    auto& connection = std::get<std::unique_ptr<NbdConnection>>(opened);
    exported_ = connection->exported();
    if (exported_.size == 0) return "it has 0 bytes; resize it on its server";
    if (is_writable_ && exported_.is_read_only) {
        return "it is read-only on its server; make it writable there, or write mode: read-only";
    }
    if (is_writable_ && !exported_.can_flush) {
        return "its server has no FLUSH, so written data is never known to be safe; write mode: "
               "read-only";
    }
    can_zero_ = exported_.can_zero;
    if (std::string why = load_map(*connection); !why.empty()) return why;
    const Lock lock(mutex_);
    connections_[leader] = std::move(connection);
    states_[leader].is_open = true;
    usable_ = exported_.can_multi_conn ? most_connections : 1;
    return {};
}

void OriginNbd::add_data(std::uint64_t begin, std::uint64_t end) {
    if (!data_.empty() && data_.back().end == begin) {
        data_.back().end = end;
    } else {
        data_.push_back({.begin = begin, .end = end});
    }
}

// A server can answer with ranges as short as it likes, so the time and the memory are bounded.
std::string OriginNbd::load_map(NbdConnection& connection) {
    data_.reserve(exported_.has_map ? most_extents : 1);
    const auto deadline = Clock::now() + limits_.map;
    std::uint64_t at = 0;
    const auto extent = [&](std::uint64_t length, bool is_zero) {
        if (data_.size() >= most_extents - 1) return;
        const std::uint64_t end = at + std::min(length, exported_.size - at);
        if (!is_zero && end != at) add_data(at, end);
        at = end;
    };
    while (exported_.has_map && at != exported_.size && Clock::now() < deadline) {
        const std::uint64_t before = at;
        const Result result =
            connection.block_status(at, std::min(exported_.size - at, map_step), extent);
        if (result.outcome == NbdConnection::Outcome::lost) return result.why;
        if (result.outcome == NbdConnection::Outcome::refused || at == before) break;
    }
    if (at != exported_.size) add_data(at, exported_.size);
    data_.shrink_to_fit();
    return {};
}

std::optional<Origin::Extent> OriginNbd::next_data(std::uint64_t offset) const {
    const auto found = std::ranges::upper_bound(data_, offset, {}, &Extent::end);
    if (found == data_.end()) return std::nullopt;
    return Extent{.begin = std::max(found->begin, offset), .end = found->end};
}

SourceId OriginNbd::id_of_contents() const {
    if (is_writable_) return id();
    return {Fingerprint().add(exported_.name).add(exported_.description).value(), exported_.size};
}

// --- connections ---------------------------------------------------------------------------------

std::optional<std::size_t> OriginNbd::free_one(bool leads) const {
    if (leads || !is_current(leader)) {
        if (states_[leader].is_busy) return std::nullopt;
        return leader;
    }
    for (std::size_t index = 0; index != usable_; ++index) {
        if (!states_[index].is_busy && is_current(index)) return index;
    }
    if (Clock::now() < grows_at_) return std::nullopt;
    for (std::size_t index = 0; index != usable_; ++index) {
        if (!states_[index].is_busy) return index;
    }
    return std::nullopt;
}

std::size_t OriginNbd::take(bool leads) {
    while (true) {
        if (const auto index = free_one(leads)) {
            states_[*index].is_busy = true;
            return *index;
        }
        returned_.wait(mutex_);
    }
}

std::string OriginNbd::difference(const NbdExport& found) const {
    if (found.size != exported_.size) {
        return fmt::format("its size was {} bytes, and is {} now", exported_.size, found.size);
    }
    if (found.name != exported_.name) return "its name on its server has changed";
    if (found.description != exported_.description) {
        return "its description has changed, so it is another one";
    }
    if (is_writable_ && (found.is_read_only || !found.can_flush)) {
        return "it cannot be written to any more";
    }
    return {};
}

bool OriginNbd::open_leader(Clock::time_point since, std::string& why) {
    auto pause = limits_.first_pause;
    while (true) {
        auto opened = NbdConnection::open(uri_, limits_.connection, false);
        if (auto* const connection = std::get_if<std::unique_ptr<NbdConnection>>(&opened)) {
            const NbdExport& found = (*connection)->exported();
            why = difference(found);
            bool says_connected = false;
            {
                const Lock lock(mutex_);
                if (why.empty()) {
                    states_[leader].is_open = true;
                    states_[leader].generation = generation_;
                    usable_ = found.can_multi_conn ? most_connections : 1;
                    grows_at_ = {};
                    says_connected = std::exchange(has_said_lost_, false);
                } else {
                    why += "; restart the server to use it";
                    ended_ = why;
                }
            }
            if (!why.empty()) return false;
            connections_[leader] = std::move(*connection);
            returned_.notify_all();
            LogLine(spdlog::level::info, says_connected)
                .with("origin", uri_)
                .log("origin {}: connected again", uri_);
            return true;
        }
        why = std::move(std::get<std::string>(opened));
        if (Clock::now() + pause - since > limits_.reconnect) return false;
        std::this_thread::sleep_for(pause);
        pause = std::min(pause * 2, limits_.longest_pause);
    }
}

bool OriginNbd::open_other(std::size_t index) {
    std::uint64_t generation = 0;
    {
        const Lock lock(mutex_);
        generation = generation_;
    }
    auto opened = NbdConnection::open(uri_, limits_.connection, false);
    auto* const connection = std::get_if<std::unique_ptr<NbdConnection>>(&opened);
    const Lock lock(mutex_);
    // What differs is an error of the next leader, since this may be the export of a server that
    // replaces the leader's.
    if (connection == nullptr || !difference((*connection)->exported()).empty()) {
        grows_at_ = Clock::now() + growth_pause;
        return false;
    }
    connections_[index] = std::move(*connection);
    states_[index].is_open = true;
    states_[index].generation = generation;
    return is_current(index);
}

void OriginNbd::lose(std::size_t index, const std::string& why) {
    connections_[index].reset();
    const Lock lock(mutex_);
    states_[index].is_open = false;
    if (index != leader) return;
    ++generation_;
    lost_at_ = Clock::now();
    if (unflushed_ != 0) is_unsafe_ = true;
    // A server may end each connection at once.
    const bool says_lost = lost_at_ >= says_at_;
    if (says_lost) {
        has_said_lost_ = true;
        says_at_ = lost_at_ + log_pause;
    }
    LogLine(spdlog::level::warn, says_lost)
        .with("origin", uri_)
        .with("error", why)
        .log("origin {}: the connection was lost, and is made again: {}", uri_, why);
}

bool OriginNbd::accept(Kind kind, std::size_t index, std::uint64_t covered) {
    const Lock lock(mutex_);
    if (kind == Kind::read) return true;
    if (!is_current(index)) return false;
    if (kind == Kind::write) {
        ++unflushed_;
    } else {
        unflushed_ -= covered;
    }
    return true;
}

template <typename Request>
OriginNbd::Result OriginNbd::run(Kind kind, Request request) {
    const auto begin = Clock::now();
    std::optional<Clock::time_point> failed_at;  // for the first time
    bool leads = kind == Kind::flush;
    auto pause = std::chrono::milliseconds(0);  // the first repetition is immediate
    std::string why;
    while (true) {
        if (failed_at) {
            std::this_thread::sleep_for(pause);
            pause = std::clamp(pause * 2, limits_.first_pause, limits_.longest_pause);
        }
        const Lease lease(*this, leads);
        const std::size_t index = lease.index();
        bool is_open = false;
        std::uint64_t covered = 0;
        Clock::time_point since;
        {
            const Lock lock(mutex_);
            if (!ended_.empty()) return {NbdConnection::Outcome::refused, ended_};
            is_open = is_current(index);
            since = failed_at.value_or(std::max(begin, lost_at_));
        }
        if (!is_open) {
            if (Clock::now() - since > limits_.reconnect) {
                return {NbdConnection::Outcome::refused,
                        why.empty() ? "its server cannot be reached" : why};
            }
            connections_[index].reset();
            if (index == leader) {
                if (!open_leader(since, why)) return {NbdConnection::Outcome::refused, why};
            } else if (!open_other(index)) {
                continue;
            }
        }
        {
            const Lock lock(mutex_);
            covered = unflushed_;
        }
        Result result = request(*connections_[index]);
        if (result.outcome == NbdConnection::Outcome::refused) return result;
        if (result.outcome == NbdConnection::Outcome::done) {
            if (accept(kind, index, covered)) return result;
        } else {
            why = std::move(result.why);
            lose(index, why);
            // Whether the leader is lost too is not known yet.
            leads = true;
        }
        if (!failed_at) failed_at = Clock::now();
    }
}

// --- requests ------------------------------------------------------------------------------------

Origin::Error OriginNbd::do_read(std::uint64_t offset, std::span<std::byte> to) {
    while (!to.empty()) {
        std::size_t part = 0;
        const Result result = run(Kind::read, [&](NbdConnection& connection) {
            part = std::min<std::uint64_t>(to.size(), connection.exported().max_payload);
            return connection.read(offset, to.first(part));
        });
        if (result.outcome != NbdConnection::Outcome::done) return problem(result.why);
        offset += part;
        to = to.subspan(part);
    }
    return {};
}

Origin::Error OriginNbd::do_write(std::uint64_t offset, std::span<const std::byte> from) {
    while (!from.empty()) {
        std::size_t part = 0;
        const Result result = run(Kind::write, [&](NbdConnection& connection) {
            part = std::min<std::uint64_t>(from.size(), connection.exported().max_payload);
            return connection.write(offset, from.first(part));
        });
        if (result.outcome != NbdConnection::Outcome::done) return problem(result.why);
        offset += part;
        from = from.subspan(part);
    }
    return {};
}

Origin::Error OriginNbd::do_zero(std::uint64_t offset, std::uint64_t length, bool keeps_space) {
    while (length != 0 && can_zero_) {
        const std::uint64_t part = std::min(length, zero_step);
        const Result result = run(Kind::write, [&](NbdConnection& connection) {
            if (!connection.exported().can_zero) {
                return Result{NbdConnection::Outcome::refused, {}, true};
            }
            return connection.zero(offset, part, keeps_space);
        });
        if (result.is_unsupported) {
            can_zero_ = false;
            break;
        }
        if (result.outcome != NbdConnection::Outcome::done) return problem(result.why);
        offset += part;
        length -= part;
    }
    return write_zeroes(offset, length);
}

Origin::Error OriginNbd::do_flush() {
    const auto unsafe = [&]() -> Error {
        const Lock lock(mutex_);
        if (!is_unsafe_) return std::nullopt;
        return problem(
            "the connection was lost after writes that were not flushed, so that its server may "
            "have lost them; check the contents, and restart the server");
    };
    if (auto why = unsafe()) return why;
    const Result result = run(Kind::flush, [](NbdConnection& each) { return each.flush(); });
    if (result.is_answer) {
        const Lock lock(mutex_);
        is_unsafe_ = true;
        return problem(result.why);
    }
    if (auto why = unsafe()) return why;
    if (result.outcome != NbdConnection::Outcome::done) return problem(result.why);
    return {};
}

}  // namespace gpunbd::storage
