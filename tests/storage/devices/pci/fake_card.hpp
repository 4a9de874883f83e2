// A fake PCI card: a sysfs folder with regular files as BARs.
#pragma once

#include <doctest/doctest.h>
#include <fmt/format.h>
#include <stdlib.h>

#include <cstdint>
#include <filesystem>
#include <fstream>
#include <string>

namespace gpunbd::storage::test {

class FakeCard {
 public:
    static constexpr const char* address = "0000:01:00.0";
    static constexpr std::uint64_t memory = 0x200;
    static constexpr std::uint64_t ports = 0x100;
    static constexpr std::uint64_t prefetchable = 0x2000;

    FakeCard() {
        REQUIRE(::mkdtemp(path_) != nullptr);
        std::filesystem::create_directories(folder());
        set("vendor", "0x1af4");
        set("device", "0x1110");
        set("class", "0x050000");
        set("enable", "1");
    }
    ~FakeCard() { std::filesystem::remove_all(path_); }
    FakeCard(const FakeCard&) = delete;
    FakeCard& operator=(const FakeCard&) = delete;

    std::string sysfs() const { return path_; }
    std::string folder() const { return sysfs() + "/bus/pci/devices/" + address; }
    std::string file(const std::string& name) const { return folder() + "/" + name; }
    std::string id(std::uint32_t bar) const { return fmt::format("pci:{}/{}", address, bar); }

    void set(const std::string& name, const std::string& value) const {
        std::ofstream(file(name)) << value << '\n';
    }
    std::string get(const std::string& name) const {
        std::ifstream stream(file(name));
        std::string word;
        stream >> word;
        return word;
    }
    // Adds the BAR to `resource`, but no file.
    void describe(std::uint32_t bar, std::uint64_t first, std::uint64_t bytes,
                  std::uint64_t flags) {
        lines_[bar] = line(first, bytes == 0 ? 0 : first + bytes - 1, flags);
        std::ofstream stream(file("resource"));
        for (const std::string& each : lines_) stream << each;
    }
    // Adds a memory BAR with its file.
    void add(std::uint32_t bar, std::uint64_t bytes, bool write_combined = true) {
        describe(bar, 0xf0000000, bytes, memory | (write_combined ? prefetchable : 0));
        const std::string name = "resource" + std::to_string(bar);
        make(name, bytes);
        if (write_combined) make(name + "_wc", bytes);
    }
    void make(const std::string& name, std::uint64_t bytes) const {
        std::ofstream(file(name)).close();
        std::filesystem::resize_file(file(name), bytes);
    }
    void bind(const std::string& driver) const {
        const std::string drivers = sysfs() + "/bus/pci/drivers/" + driver;
        std::filesystem::create_directories(drivers);
        std::filesystem::create_directory_symlink(drivers, file("driver"));
    }

 private:
    static std::string line(std::uint64_t first, std::uint64_t last, std::uint64_t flags) {
        char text[80];
        std::snprintf(text, sizeof text, "0x%016llx 0x%016llx 0x%016llx\n",
                      static_cast<unsigned long long>(first), static_cast<unsigned long long>(last),
                      static_cast<unsigned long long>(flags));
        return text;
    }

    char path_[40] = "/tmp/gpunbd-card-XXXXXX";
    std::string lines_[6] = {line(0, 0, 0), line(0, 0, 0), line(0, 0, 0),
                             line(0, 0, 0), line(0, 0, 0), line(0, 0, 0)};
};

}  // namespace gpunbd::storage::test
