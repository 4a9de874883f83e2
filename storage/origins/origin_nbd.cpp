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
// A server may let clients wait that are too many for it. The call that tries waits too, and could
// share a connection.
constexpr std::chrono::milliseconds longest_growth{1'000};
constexpr std::chrono::seconds growth_pause{60};  // after a connection that was not possible
constexpr std::chrono::seconds log_pause{10};  // from one line about a lost connection to the next

}  // namespace

// The connection of a call, or the right to make it. Neither, if other calls make the leader until
// the time has passed.
class OriginNbd::Lease {
 public:
    Lease(OriginNbd& origin, bool leads, Clock::time_point until) : origin_(origin) {
        const Lock lock(origin.mutex_);
        std::optional<std::size_t> chosen;
        origin.opened_.wait_until(origin.mutex_, until, [&]() REQUIRES(origin.mutex_) {
            chosen = origin.choose(leads);
            return chosen.has_value();
        });
        if (!chosen) return;
        index_ = *chosen;
        opens_ = !origin.is_current(index_);
        if (opens_) origin.places_[index_].is_opening = true;
        if (!opens_) share();
    }
    ~Lease() {
        if (opens_) has_opened();
    }
    Lease(const Lease&) = delete;
    Lease& operator=(const Lease&) = delete;

    std::size_t index() const { return index_; }
    bool opens() const { return opens_; }
    bool is_empty() const { return !opens_ && connection_ == nullptr; }
    // The call has made a connection, or not. Others may try it now.
    void has_opened() {
        {
            const Lock lock(origin_.mutex_);
            origin_.places_[index_].is_opening = opens_ = false;
            if (origin_.is_current(index_)) share();
        }
        origin_.opened_.notify_all();
    }
    const std::shared_ptr<NbdConnection>& connection() const { return connection_; }
    std::uint64_t generation() const { return generation_; }
    // Writes that were answered before.
    std::uint64_t written() const { return written_; }

 private:
    void share() REQUIRES(origin_.mutex_) {
        connection_ = origin_.places_[index_].connection;
        generation_ = origin_.generation_;
        written_ = origin_.written_;
    }

    OriginNbd& origin_;
    std::size_t index_ = 0;
    bool opens_ = false;
    std::shared_ptr<NbdConnection> connection_;  // null: there is none
    std::uint64_t generation_ = 0;
    std::uint64_t written_ = 0;
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
    places_[leader].connection = std::move(connection);
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

std::optional<std::size_t> OriginNbd::choose(bool leads) const {
    if (leads || !is_current(leader)) {
        if (places_[leader].is_opening) return std::nullopt;
        return leader;
    }
    std::size_t best = leader;
    for (std::size_t index = 0; index != usable_; ++index) {
        const auto calls = [&](std::size_t of)
                               REQUIRES(mutex_) { return places_[of].connection.use_count(); };
        if (is_current(index) && calls(index) < calls(best)) best = index;
    }
    const bool is_free = places_[best].connection.use_count() == 1;
    if (is_free || Clock::now() < grows_at_) return best;
    for (std::size_t index = 0; index != usable_; ++index) {
        if (!is_current(index) && !places_[index].is_opening) return index;
    }
    return best;
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
            const NbdExport found = (*connection)->exported();
            why = difference(found);
            bool says_connected = false;
            {
                const Lock lock(mutex_);
                if (why.empty()) {
                    places_[leader].connection = std::move(*connection);
                    places_[leader].generation = generation_;
                    usable_ = found.can_multi_conn ? most_connections : 1;
                    grows_at_ = {};
                    says_connected = std::exchange(has_said_lost_, false);
                } else {
                    why += "; restart the server to use it";
                    ended_ = why;
                }
            }
            if (!why.empty()) return false;
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

void OriginNbd::open_other(std::size_t index) {
    std::uint64_t generation = 0;
    {
        const Lock lock(mutex_);
        generation = generation_;
    }
    std::shared_ptr<NbdConnection> old;  // is closed without the mutex
    auto limits = limits_.connection;
    limits.connect = std::min(limits.connect, longest_growth);
    auto opened = NbdConnection::open(uri_, limits, false);
    auto* const connection = std::get_if<std::unique_ptr<NbdConnection>>(&opened);
    const Lock lock(mutex_);
    // What differs is an error of the next leader, since this may be the export of a server that
    // replaces the leader's.
    if (connection == nullptr || !difference((*connection)->exported()).empty()) {
        grows_at_ = Clock::now() + growth_pause;
        return;
    }
    old = std::exchange(places_[index].connection, std::move(*connection));
    places_[index].generation = generation;
}

void OriginNbd::lose(const Lease& lease, const std::string& why) {
    const Lock lock(mutex_);
    Place& place = places_[lease.index()];
    if (place.connection != lease.connection()) return;  // another call has noticed it
    place.connection = nullptr;                          // the lease has it still
    if (lease.index() != leader) return;
    ++generation_;
    lost_at_ = Clock::now();
    if (flushed_ != written_) is_unsafe_ = true;
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

bool OriginNbd::accept(Kind kind, const Lease& lease) {
    const Lock lock(mutex_);
    if (kind == Kind::read) return true;
    if (lease.generation() != generation_) return false;
    if (kind == Kind::write) {
        ++written_;
    } else {
        flushed_ = std::max(flushed_, lease.written());
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
        Clock::time_point since;
        {
            const Lock lock(mutex_);
            since = failed_at.value_or(std::max(begin, lost_at_));
        }
        Lease lease(*this, leads, since + limits_.reconnect);
        {
            const Lock lock(mutex_);
            if (!ended_.empty()) return {NbdConnection::Outcome::refused, ended_};
        }
        // Other calls may make connections, and this request may end each of them.
        const bool is_late = Clock::now() - since > limits_.reconnect;
        if (lease.is_empty() || (is_late && (failed_at || lease.opens()))) {
            return {NbdConnection::Outcome::refused,
                    why.empty() ? "its server cannot be reached" : why};
        }
        if (lease.opens()) {
            if (lease.index() != leader) {
                open_other(lease.index());
            } else if (!open_leader(since, why)) {
                return {NbdConnection::Outcome::refused, why};
            }
            lease.has_opened();
            if (lease.connection() == nullptr) continue;
        }
        Result result = request(*lease.connection());
        if (result.outcome == NbdConnection::Outcome::refused) return result;
        if (result.outcome == NbdConnection::Outcome::done) {
            if (accept(kind, lease)) return result;
        } else {
            why = std::move(result.why);
            lose(lease, why);
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
