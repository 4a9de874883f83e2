#include "server/tools/status/top_page.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <map>
#include <string_view>

#include "server/tools/status/sanitized_text.hpp"
#include "server/tools/status/status_text.hpp"

namespace gpunbd::status {
namespace {

constexpr std::size_t most_progress = 3;  // rows
constexpr std::size_t rows_around = 6;    // two lines of the server, three titles, the keys
constexpr std::string_view sort_letters = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ*";
constexpr std::array<std::string_view, 6> sort_names{"rate", "requests", "latency",
                                                     "used", "clients",  "name"};
constexpr std::array<Style, 6> export_styles{Style::first,  Style::second, Style::third,
                                             Style::fourth, Style::fifth,  Style::sixth};

// An export has the same letter in all tables.
std::string_view letter_of(std::size_t index) {
    return sort_letters.substr(std::min(index, sort_letters.size() - 1), 1);
}
Style style_of(std::size_t index) { return export_styles.at(index % export_styles.size()); }

std::string shown_name(const std::string& name) { return name.empty() ? "''" : name; }

struct ListedExport {
    std::size_t index = 0;  // in the order of the server
    const ExportFigures* figures = nullptr;
    Rates rates;
};

double rank(const ListedExport& each, Sort sort) {
    switch (sort) {
        case Sort::rate:
            return each.rates.read + each.rates.written;
        case Sort::requests:
            return each.rates.requests;
        case Sort::latency:
            return each.figures->last_p99;
        case Sort::used:
            return static_cast<double>(each.figures->used);
        case Sort::clients:
            return static_cast<double>(each.figures->connections);
        case Sort::name:
            break;
    }
    return 0;
}

std::vector<ListedExport> listed_exports(const Picture& picture, const View& view) {
    std::vector<ListedExport> out;
    const std::vector<ExportFigures>& exports = picture.now.status.exports;
    for (std::size_t i = 0; i != exports.size(); ++i) {
        if (view.only && exports[i].name != *view.only) continue;
        const Rates rates =
            picture.activity ? picture.activity->of_export(exports[i].name) : Rates{};
        out.push_back({i, &exports[i], rates});
    }
    std::stable_sort(out.begin(), out.end(), [&](const ListedExport& a, const ListedExport& b) {
        if (view.sort == Sort::name) return a.figures->name < b.figures->name;
        return rank(a, view.sort) > rank(b, view.sort);
    });
    return out;
}

std::size_t selected_place(const std::vector<ListedExport>& listed, const View& view) {
    for (std::size_t i = 0; i != listed.size(); ++i) {
        if (listed[i].figures->name == view.selected) return i;
    }
    return 0;
}

struct ListedClient {
    const ConnectionFigures* figures = nullptr;
    Rates rates;
};

std::vector<ListedClient> listed_clients(const Picture& picture, const View& view) {
    std::vector<ListedClient> out;
    for (const ConnectionFigures& each : picture.now.connections) {
        if (view.only && each.export_name != *view.only) continue;
        out.push_back(
            {&each, picture.activity ? picture.activity->of_connection(each.id) : Rates{}});
    }
    std::stable_sort(out.begin(), out.end(), [](const ListedClient& a, const ListedClient& b) {
        return a.rates.read + a.rates.written > b.rates.read + b.rates.written;
    });
    return out;
}

// The number of rows of each part, without three titles and the last row.
struct Parts {
    std::size_t progress = 0;
    std::size_t devices = 0;
    std::size_t exports = 0;
    std::size_t clients = 0;
};

Parts share_out(const Picture& picture, std::size_t exports, std::size_t clients,
                std::size_t rows) {
    std::size_t left = rows - std::min(rows, rows_around);
    const auto take = [&](std::size_t wanted) {
        const std::size_t taken = std::min(wanted, left);
        left -= taken;
        return taken;
    };
    Parts out;
    out.progress = take(std::min(picture.now.status.progress.size(), most_progress));
    const std::size_t most_devices =
        std::max({left - std::min(left, exports + clients), left / 4, std::size_t{1}});
    out.devices = take(std::min(picture.now.status.devices.size(), most_devices));
    const std::size_t most_exports = std::max(left - std::min(left, clients), left * 3 / 5);
    out.exports = take(std::min(exports, most_exports));
    out.clients = take(clients);
    return out;
}

std::string bar(std::uint64_t part, std::uint64_t whole, std::size_t columns) {
    const std::size_t filled = columns * percent(part, whole) / 100;
    // A value above 0 is always visible.
    const std::size_t shown =
        part > 0 && whole > 0 ? std::min(std::max<std::size_t>(filled, 1), columns) : 0;
    return std::string(shown, '#') + std::string(columns - shown, '.');
}

class Pen {
 public:
    Pen(const Picture& picture, const View& view, PageSize size)
        : picture_(picture),
          view_(view),
          canvas_(size),
          columns_(size.columns),
          exports_(listed_exports(picture, view)),
          clients_(listed_clients(picture, view)),
          parts_(share_out(picture, exports_.size(), clients_.size(), size.rows)) {}

    Canvas draw() {
        server_lines();
        progress_lines();
        device_lines();
        export_lines();
        client_lines();
        last_line();
        if (view_.help) help_box();
        return std::move(canvas_);
    }

 private:
    void title(const std::string& text) {
        canvas_.put(row_, 0, text);
        canvas_.paint(row_++, Style::reversed);
    }
    std::size_t beyond(std::size_t least) const { return columns_ - std::min(columns_, least); }

    // A part that does not fit is left out as a whole.
    void add_part(std::string& line, const std::string& part) const {
        if (columns_of(line) + columns_of(part) <= columns_) line += part;
    }

    void server_lines() {
        const Snapshot& status = picture_.now.status;
        const ProcessFigures& process = status.process;
        std::string text = fmt::format("gpunbd {}", process.version);
        add_part(text, fmt::format("  pid {}", process.pid));
        add_part(text, fmt::format("  {} {}", process.state, short_age(process.uptime)));
        add_part(text, fmt::format("  {} workers", process.workers));
        if (picture_.activity) {
            add_part(text, fmt::format("  {:.0f}% CPU", picture_.activity->cpus * 100));
        }
        add_part(text,
                 fmt::format("  {} memory", short_size(static_cast<double>(process.resident))));
        add_part(text, fmt::format("  {} of {} files", process.open_files, process.max_open_files));
        canvas_.put(row_++, 0, text, Style::strong);
        if (!picture_.trouble.empty()) {
            canvas_.put(
                row_, 0,
                fmt::format("NOT ANSWERING for {}: {}; at {}", short_age(picture_.trouble_seconds),
                            picture_.trouble, picture_.server));
            canvas_.paint(row_++, Style::warning);
            return;
        }
        const std::uint64_t stalled = stalled_clients();
        text = fmt::format("connections: {} now", status.connections);
        if (stalled != 0) add_part(text, fmt::format(" ({} stalled)", stalled));
        add_part(text, fmt::format(", {} in all", status.accepted));
        add_part(text, fmt::format(", {} refused", status.refused));
        add_part(text, fmt::format(", {} failed", status.failed_handshakes));
        add_part(text, fmt::format("; at {}", picture_.server));
        canvas_.put(row_++, 0, text, stalled == 0 ? Style::plain : Style::warning);
    }

    std::uint64_t stalled_clients() const {
        std::uint64_t out = 0;
        for (const ExportFigures& each : picture_.now.status.exports) out += each.stalled;
        return out;
    }

    void progress_lines() {
        for (std::size_t i = 0; i != parts_.progress; ++i) {
            const ProgressFigures& each = picture_.now.status.progress[i];
            const std::size_t width = std::min<std::size_t>(columns_ / 4, 40);
            canvas_.put(row_, 0, bar(each.done, each.total, width), Style::strong);
            canvas_.put(row_++, width + 1, progress_text(each));
        }
    }

    static constexpr std::size_t device_names = 18;  // columns
    static constexpr std::size_t device_figures = 28;

    void device_lines() {
        const std::size_t all = picture_.now.status.devices.size();
        const std::string more =
            all > parts_.devices ? fmt::format(" ({} of {})", parts_.devices, all) : "";
        const std::size_t width = beyond(device_names + 2 + device_figures);
        title(fmt::format("{:<{}} {} {:>7}{:>7}{:>7}{:>7}", "DEVICE" + more, device_names,
                          fitted("MEMORY (= OTHERS, . FREE)", width), "USED", "ALLOC", "FREE",
                          "TOTAL"));
        for (std::size_t i = 0; i != parts_.devices; ++i) {
            device_line(picture_.now.status.devices[i], width);
        }
    }

    void device_line(const DeviceFigures& device, std::size_t width) {
        canvas_.put(row_, 0, fitted(device.id, device_names),
                    device.failed ? Style::warning : Style::plain);
        device_bar(device, device_names + 1, width);
        const auto figure = [](std::uint64_t bytes) {
            return fmt::format("{:>7}", short_size(static_cast<double>(bytes)));
        };
        canvas_.put(row_++, device_names + 1 + width + 1,
                    device.failed ? std::string(" FAILED")
                                  : figure(device.used) + figure(device.allocated) +
                                        figure(device.available) + figure(device.total));
    }

    static double share_of(std::uint64_t bytes, const DeviceFigures& device) {
        return static_cast<double>(bytes) / static_cast<double>(device.total);
    }

    // A segment for each export with memory on the device, then one for memory of other programs.
    void device_bar(const DeviceFigures& device, std::size_t column, std::size_t width) {
        canvas_.put(row_, column, std::string(width, '.'), Style::faint);
        if (device.total == 0) return;
        double end = 0;
        std::size_t drawn = 0;
        const auto add = [&](double share, char mark, Style style) {
            end += share;
            const auto until =
                static_cast<std::size_t>(std::min(end, 1.0) * static_cast<double>(width) + 0.5);
            canvas_.put(row_, column + drawn, std::string(until - drawn, mark), style);
            drawn = until;
        };
        const std::vector<ExportFigures>& exports = picture_.now.status.exports;
        for (std::size_t i = 0; i != exports.size(); ++i) {
            for (const MemoryFigures& memory : exports[i].memory) {
                if (memory.device != device.id) continue;
                add(share_of(memory.allocated, device), letter_of(i)[0], style_of(i));
            }
        }
        add(std::clamp(1 - share_of(device.available, device) - end, 0.0, 1.0), '=', Style::plain);
    }

    // The width without the name and the bar, which share the rest. A narrow page has no bar.
    static constexpr std::size_t export_figures = 69;
    static constexpr std::size_t least_name = 11;
    static constexpr std::size_t widest_bar = 24;

    void export_lines() {
        const std::size_t flexible = beyond(export_figures);
        const std::size_t spare = flexible - std::min(flexible, least_name);
        bar_columns_ = std::min(spare / 2, widest_bar);
        name_columns_ = flexible - bar_columns_ - (bar_columns_ == 0 ? 0 : 1);
        title(fmt::format("  {:<{}} {:>5}/{:<5} {}{:>7} {:>6} {:>7} {:>6} {:>5} {:>5} {:>5} {:>6}",
                          std::string("EXPORT").substr(0, name_columns_), name_columns_, "USED",
                          "SIZE", std::string(bar_columns_ + (bar_columns_ == 0 ? 0 : 1), ' '),
                          "CLIENTS", "READ/s", "WRITE/s", "REQS/s", "P50", "P99", "QUEUE",
                          "ERRORS"));
        const std::size_t selected = selected_place(exports_, view_);
        const std::size_t begin =
            selected < parts_.exports ? 0 : selected - std::max<std::size_t>(parts_.exports, 1) + 1;
        for (std::size_t i = 0; i != parts_.exports; ++i) {
            export_line(exports_[begin + i], begin + i == selected);
        }
    }

    void export_line(const ListedExport& each, bool selected) {
        const ExportFigures& figures = *each.figures;
        const Style style = selected ? Style::strong : Style::plain;
        const auto size = [](std::uint64_t bytes) {
            return short_size(static_cast<double>(bytes));
        };
        const auto count = [](std::uint64_t number) {
            return short_count(static_cast<double>(number));
        };
        canvas_.put(row_, 0, letter_of(each.index), style_of(each.index));
        std::string text =
            fmt::format("{} {:>5}/{:<5} ", fitted(shown_name(figures.name), name_columns_),
                        size(figures.used), size(figures.size));
        if (bar_columns_ != 0) text += bar(figures.used, figures.size, bar_columns_) + ' ';
        const std::size_t clients = 2 + columns_of(text);
        const std::string of_clients = fmt::format("{:>7}", count(figures.connections));
        const std::string rates =
            fmt::format(" {:>6} {:>7} {:>6} {:>5} {:>5} {:>5} ", short_size(each.rates.read),
                        short_size(each.rates.written), short_count(each.rates.requests),
                        short_duration(figures.last_p50), short_duration(figures.last_p99),
                        count(figures.total(&RequestFigures::in_flight)));
        canvas_.put(row_, 2, text, style);
        canvas_.put(row_, clients, of_clients, figures.stalled == 0 ? style : Style::warning);
        canvas_.put(row_, clients + columns_of(of_clients), rates, style);
        canvas_.put(row_, clients + columns_of(of_clients) + columns_of(rates),
                    fmt::format("{:>6}", count(figures.total(&RequestFigures::errors))),
                    each.rates.errors == 0 ? style : Style::warning);
        if (selected) canvas_.put(row_, 1, ">", Style::strong);
        ++row_;
    }

    void client_lines() {
        constexpr std::size_t figures = 55;  // with the title of the last column
        const std::size_t flexible = beyond(figures);
        const std::size_t peer = flexible * 2 / 3;
        const std::size_t name = flexible - peer;
        title(fmt::format("  {} {} {:>6} {:>7} {:>6} {:>5} {:>6} {:>6}  {}", fitted("CLIENT", peer),
                          fitted("EXPORT", name), "READ/s", "WRITE/s", "REQS/s", "QUEUE", "ERRORS",
                          "AGE", "IDENTITY"));
        const std::size_t begin =
            std::min(view_.only ? view_.skipped : 0, clients_.size() - parts_.clients);
        for (std::size_t i = begin; i != begin + parts_.clients; ++i) {
            client_line(clients_[i], peer, name);
        }
    }

    void client_line(const ListedClient& client, std::size_t peer, std::size_t name) {
        const ConnectionFigures& each = *client.figures;
        const Rates& rates = client.rates;
        const bool stalled = each.stalled > 0;
        const std::string moves =
            stalled ? fmt::format("{:>21}", fmt::format("STALLED for {}", short_age(each.stalled)))
                    : fmt::format("{:>6} {:>7} {:>6}", short_size(rates.read),
                                  short_size(rates.written), short_count(rates.requests));
        canvas_.put(row_, 2,
                    fmt::format("{} {} {} {:>5} {:>6} {:>6}  {}", fitted(each.peer, peer),
                                fitted(shown_name(each.export_name), name), moves,
                                short_count(static_cast<double>(each.in_flight)),
                                short_count(static_cast<double>(each.errors)), short_age(each.age),
                                each.identity.empty() ? "-" : each.identity));
        if (stalled || rates.errors > 0) canvas_.paint(row_, Style::warning);
        ++row_;
    }

    void last_line() {
        if (canvas_.size().rows == 0) return;
        std::string text = fmt::format("q quit  s sort: {}  e {}  arrows, PgUp/Dn  ? help",
                                       sort_names.at(static_cast<std::size_t>(view_.sort)),
                                       view_.only ? "all exports" : "one export");
        const std::size_t hidden = exports_.size() - parts_.exports + clients_.size() -
                                   parts_.clients +
                                   static_cast<std::size_t>(picture_.now.connections_left_out);
        if (hidden > 0) text += fmt::format("  ({} more)", hidden);
        canvas_.put(canvas_.size().rows - 1, 0, text, Style::faint);
    }

    void help_box() {
        static constexpr std::array<std::string_view, 16> text{
            "q       quit",
            "s       sort by rate, requests, latency,",
            "        used memory, clients, name",
            "up, down, PgUp, PgDn",
            "        select an export, or with a single",
            "        export: scroll through its clients",
            "e       show this export only, or all",
            "?       close this",
            "",
            "Letters in the bars stand for exports.",
            "Rates, P50 and P99 are of the last second; P50, P99:",
            "reads or writes, the slower, measured in the server.",
            "QUEUE: requests in flight. ERRORS: since the start.",
            "STALLED: the client does not receive its replies.",
            "K, M, G: binary; for clients and requests: thousands.",
            ""};
        constexpr std::size_t width = 54;
        const std::size_t left = beyond(width) / 2;
        for (std::size_t i = 0; i != text.size() + 1; ++i) {
            const std::string line = i == 0 ? "" : std::string(text.at(i - 1));
            canvas_.put(2 + i, left, "  " + fitted(line, width - 4) + "  ", Style::reversed);
        }
    }

    const Picture& picture_;
    const View& view_;
    Canvas canvas_;
    const std::size_t columns_;
    const std::vector<ListedExport> exports_;
    const std::vector<ListedClient> clients_;
    const Parts parts_;
    std::size_t row_ = 0;
    std::size_t name_columns_ = 0;
    std::size_t bar_columns_ = 0;
};

// Moves `place` within `count`.
std::size_t moved(std::size_t place, std::size_t count, std::size_t step, bool back) {
    if (back) return place - std::min(place, step);
    return std::min(place + step, count == 0 ? 0 : count - 1);
}

void move(const Picture& picture, std::size_t step, bool back, View& view) {
    if (view.only) {
        view.skipped = moved(view.skipped, listed_clients(picture, view).size(), step, back);
        return;
    }
    const auto listed = listed_exports(picture, view);
    if (listed.empty()) return;
    const std::size_t place = moved(selected_place(listed, view), listed.size(), step, back);
    view.selected = listed[place].figures->name;
}

void toggle_only(const Picture& picture, View& view) {
    view.skipped = 0;
    if (view.only) {
        view.selected = *view.only;
        view.only.reset();
        return;
    }
    const auto listed = listed_exports(picture, view);
    if (!listed.empty()) view.only = listed[selected_place(listed, view)].figures->name;
}

}  // namespace

void handle_key(Key key, const Picture& picture, PageSize size, View& view) {
    const std::size_t page = std::max<std::size_t>(size.rows / 2, 1);
    switch (key) {
        case Key::quit:
            return;
        case Key::sort:
            view.sort =
                static_cast<Sort>((static_cast<std::size_t>(view.sort) + 1) % sort_names.size());
            return;
        case Key::only_one:
            return toggle_only(picture, view);
        case Key::explain:
            view.help = !view.help;
            return;
        case Key::up:
            return move(picture, 1, true, view);
        case Key::down:
            return move(picture, 1, false, view);
        case Key::page_up:
            return move(picture, page, true, view);
        case Key::page_down:
            return move(picture, page, false, view);
    }
}

std::size_t rows_for_all(const Picture& picture) {
    const Snapshot& status = picture.now.status;
    return rows_around + std::min(status.progress.size(), most_progress) + status.devices.size() +
           status.exports.size() + picture.now.connections.size();
}

Canvas draw(const Picture& picture, const View& view, PageSize size) {
    return Pen(picture, view, size).draw();
}

}  // namespace gpunbd::status
