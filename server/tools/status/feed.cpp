#include "server/tools/status/feed.hpp"

#include <chrono>
#include <utility>

#include "server/tools/status/http_call.hpp"
#include "server/tools/status/sanitized_text.hpp"

namespace gpunbd::status {

namespace {

constexpr std::chrono::seconds first_patience{10};
constexpr std::chrono::seconds patience{2};  // no keys are read during this time
constexpr std::chrono::seconds silence{10};  // a stream without data for this time is dead
constexpr std::chrono::seconds between_calls{1};

client::Deadline in(std::chrono::seconds time) { return client::Clock::now() + time; }

// Removes the address, because the page shows it elsewhere.
std::string without_address(std::string text, const std::string& place) {
    return text.starts_with(place + ": ") ? text.substr(place.size() + 2) : text;
}

}  // namespace

Expected<std::vector<EventReader::Event>, Failure> EventReader::take(std::string_view bytes) {
    std::vector<Event> out;
    while (!bytes.empty()) {
        const std::size_t end = bytes.find('\n');
        line_ += bytes.substr(0, end);
        if (line_.size() + event_.data.size() > longest_) return Failure{"an event does not end"};
        if (end == std::string_view::npos) break;
        bytes.remove_prefix(end + 1);
        if (line_.ends_with('\r')) line_.pop_back();
        take_line(std::exchange(line_, {}), out);
    }
    return out;
}

void EventReader::take_line(std::string_view line, std::vector<Event>& out) {
    if (line.empty()) {
        if (!event_.data.empty()) out.push_back(event_);
        event_ = {};
        return;
    }
    const std::size_t colon = line.find(':');
    const std::string_view field = line.substr(0, colon);
    std::string_view value =
        colon == std::string_view::npos ? std::string_view{} : line.substr(colon + 1);
    if (value.starts_with(' ')) value.remove_prefix(1);
    if (field == "event") event_.name = value;
    if (field != "data") return;
    if (!event_.data.empty()) event_.data += '\n';
    event_.data += value;
}

std::optional<Failure> Feed::begin() {
    if (auto failed = find()) return failed;
    const Expected<std::string, Failure> body =
        get(*server_, {.target = "/api/v1/status"}, in(first_patience));
    if (!body) return body.error();
    Expected<Snapshot, Failure> status = read_status(*body);
    if (!status) {
        return Failure{server_->address.text + ": " + status.error().text};
    }
    take({.status = std::move(*status), .connections = {}});
    next_ = client::Clock::now();
    return std::nullopt;
}

int Feed::fd() const { return stream_ ? stream_->fd.get() : -1; }

bool Feed::step() {
    if (stream_) {
        const Expected<bool, Failure> read = read_stream();
        if (!read) {
            lose(read.error());
            return true;
        }
        if (*read) return true;
        if (!stream_) return step();  // the server has no stream
        if (client::Clock::now() < next_) return false;
        lose({"no data for 10 s"});
        return true;
    }
    if (client::Clock::now() < next_) return false;
    auto failed = without_stream_ ? ask_again() : open();
    if (failed) lose(*failed);
    return failed.has_value() || !stream_;
}

const Picture& Feed::picture() {
    if (lost_) {
        const std::chrono::duration<double> away = client::Clock::now() - *lost_;
        picture_.trouble_seconds = away.count();
    }
    return picture_;
}

// Searches each time, because the socket of a restarted server has another name (its process id).
std::optional<Failure> Feed::find() {
    if (server_ && (selection_.socket || selection_.url)) return std::nullopt;
    Expected<AdminServer, Failure> found = find_server(selection_, folders_);
    if (!found) return std::move(found).error();
    server_ = std::move(*found);
    picture_.server = sanitized(server_->address.text);
    return std::nullopt;
}

std::optional<Failure> Feed::open() {
    if (auto failed = find()) return failed;
    without_stream_ = false;
    Expected<OwnedFd, Failure> connection =
        send_request(*server_, {.target = "/api/v1/stream"}, in(patience));
    if (!connection) return std::move(connection).error();
    stream_.emplace(Stream{.fd = std::move(*connection),
                           .answer = HttpAnswer(std::nullopt),
                           .events = EventReader(longest_response)});
    next_ = in(silence);
    return std::nullopt;
}

// Returns true if a tick has arrived.
Expected<bool, Failure> Feed::read_stream() {
    const Expected<bool, Failure> received = receive(stream_->fd.get(), stream_->answer);
    if (!received) return received.error();
    if (!*received || !stream_->answer.has_head()) return false;
    if (stream_->answer.code() != 200) {
        // The server has no stream, has reached its limit of streams, or refuses all requests.
        stream_.reset();
        without_stream_ = true;
        next_ = client::Clock::now();
        return false;
    }
    const std::string body = stream_->answer.take_body();
    const Expected<std::vector<EventReader::Event>, Failure> events = stream_->events.take(body);
    if (!events) return events.error();
    bool ticked = false;
    for (const EventReader::Event& each : *events) {
        if (each.name != "tick") continue;
        Expected<Tick, Failure> tick = read_tick(each.data);
        if (!tick) return tick.error();
        take(std::move(*tick));
        next_ = in(silence);
        ticked = true;
    }
    if (!ticked && stream_->answer.complete()) return Failure{"the server closed the connection"};
    return ticked;
}

std::optional<Failure> Feed::ask_again() {
    next_ = in(between_calls);
    const Expected<std::string, Failure> status_body =
        get(*server_, {.target = "/api/v1/status"}, in(patience));
    if (!status_body) return status_body.error();
    Expected<Snapshot, Failure> status = read_status(*status_body);
    if (!status) return status.error();
    Tick tick{.status = std::move(*status), .connections = {}};
    const Expected<std::string, Failure> body =
        get(*server_, {.target = "/api/v1/connections"}, in(patience));
    if (!body) return body.error();
    auto connections = read_connections(*body);
    if (!connections) return connections.error();
    tick.connections = std::move(*connections);
    take(std::move(tick));
    return std::nullopt;
}

void Feed::take(Tick tick) {
    picture_.activity = has_tick_ ? activity_between(picture_.now, tick) : std::nullopt;
    picture_.now = std::move(tick);
    picture_.trouble.clear();
    has_tick_ = true;
    lost_.reset();
}

void Feed::lose(const Failure& failed) {
    stream_.reset();
    without_stream_ = false;
    picture_.trouble = without_address(sanitized(failed.text), picture_.server);
    // The activity since then is unknown.
    picture_.activity.reset();
    if (!lost_) lost_ = client::Clock::now();
    next_ = in(between_calls);
}

}  // namespace gpunbd::status
