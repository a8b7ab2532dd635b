import com.sun.net.httpserver.HttpExchange;
import com.sun.net.httpserver.HttpServer;
import java.io.IOException;
import java.net.InetSocketAddress;
import java.util.concurrent.Executors;

class Server {
    /** What the collector has to walk through. */
    static Object[] heap;

    public static void main(String[] args) throws IOException {
        System.setProperty("sun.net.httpserver.nodelay", "true");
        heap = fill(6_000_000);
        HttpServer server = HttpServer.create(new InetSocketAddress("0.0.0.0", 8080), 0);
        server.createContext("/", Server::answer);
        server.setExecutor(Executors.newFixedThreadPool(8));
        server.start();
    }

    static Object[] fill(int count) {
        Object[] all = new Object[count];
        for (int i = 0; i < count; i++) all[i] = new long[2];
        return all;
    }

    static void answer(HttpExchange exchange) throws IOException {
        if (exchange.getRequestMethod().equals("PUT")) System.gc();
        byte[] body = "ok".getBytes();
        exchange.sendResponseHeaders(200, body.length);
        exchange.getResponseBody().write(body);
        exchange.close();
    }
}
