// Threads that calculate, wait, sort by a callback of the C library, throw, and are interrupted by
// signals, so that stacks of all these kinds can be taken.
#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <memory>
#include <mutex>
#include <poll.h>
#include <stdexcept>
#include <string>
#include <sys/time.h>
#include <thread>
#include <unordered_map>
#include <vector>

static std::atomic<unsigned long> total;

struct Shape {
    virtual ~Shape() = default;
    virtual double area(int depth) const = 0;
};

struct Square : Shape {
    double side;
    explicit Square(double side) : side(side) {}
    double area(int) const override { return side * side; }
};

struct Group : Shape {
    std::vector<std::unique_ptr<Shape>> parts;
    double area(int depth) const override {
        double sum = 0;
        for (auto &part : parts)
            sum += part->area(depth + 1);
        return sum;
    }
};

static std::unique_ptr<Shape> build(int depth) {
    if (depth == 0)
        return std::make_unique<Square>(rand() % 10);
    auto group = std::make_unique<Group>();
    for (int i = 0; i < 3; i++)
        group->parts.push_back(build(depth - 1));
    return group;
}

static void shapes() {
    for (;;)
        total += static_cast<unsigned long>(build(6)->area(0));
}

static int compare(const void *a, const void *b) {
    int left = *static_cast<const int *>(a), right = *static_cast<const int *>(b);
    return (left > right) - (left < right);
}

static void sorts() {
    for (;;) {
        std::vector<int> numbers(10000);
        for (auto &number : numbers)
            number = rand();
        qsort(numbers.data(), numbers.size(), sizeof(int), compare);
        std::sort(numbers.begin(), numbers.end(), std::greater<int>());
        total += numbers[0];
    }
}

static int fall(int depth) {
    if (depth == 0)
        throw std::runtime_error("fell");
    return fall(depth - 1) + 1;
}

static void throws() {
    for (;;) {
        try {
            total += fall(rand() % 20);
        } catch (const std::exception &error) {
            total += std::string(error.what()).size();
        }
    }
}

static void maps() {
    std::unordered_map<std::string, std::string> map;
    for (;;) {
        map[std::to_string(rand() % 1000)] = std::to_string(rand());
        if (map.size() > 500)
            map.clear();
    }
}

static std::mutex lock;
static std::condition_variable changed;

static void waits() {
    std::unique_lock<std::mutex> held(lock);
    for (;;)
        changed.wait_for(held, std::chrono::milliseconds(5));
}

static void polls() {
    for (;;)
        poll(nullptr, 0, 3);
}

// Vectors that want a stack aligned to more than the calling convention gives.
static void __attribute__((noinline)) aligned(int depth) {
    alignas(64) volatile double room[8];
    for (int i = 0; i < 8; i++)
        room[i] = depth + i;
    if (depth > 0)
        aligned(depth - 1);
    total += static_cast<unsigned long>(room[depth % 8]);
}

static void aligns() {
    for (;;)
        aligned(12);
}

static void interrupted(int) {
    std::vector<int> few = {5, 3, 9, 1, 7};
    for (int i = 0; i < 200; i++)
        qsort(few.data(), few.size(), sizeof(int), compare);
}

int main() {
    signal(SIGALRM, interrupted);
    itimerval every = {{0, 1000}, {0, 1000}};
    setitimer(ITIMER_REAL, &every, nullptr);
    std::vector<std::thread> threads;
    for (auto work : {shapes, sorts, throws, maps, waits, polls, aligns})
        threads.emplace_back(work);
    puts("ready");
    fflush(stdout);
    for (auto &thread : threads)
        thread.join();
}
